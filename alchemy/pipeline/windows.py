"""Pipes that cut long token sequences into overlapping windows; each token is owned by exactly one window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline, where_in
from alchemy.pipeline.encode import FieldMaker, MadeField, Texts, Wordwise, check_index, enumerate_samples
from alchemy.pipeline.itr import field_of

__all__ = ["Windows", "WindowsStream"]

OF, START, OWNED = "window_of", "window_start", "owned"


class _Span(NamedTuple):
    """The tokens `[start, end)` of a text that a window contains, and the tokens `[first, last)` that it owns."""

    start: int
    end: int
    first: int
    last: int


def spans(length: int, room: int, overlap: int) -> list[_Span]:
    """Return the windows of a text; a token is owned by the first window in which it is farthest from a cut.

    >>> spans(5, room=4, overlap=2)
    [_Span(start=0, end=4, first=0, last=3), _Span(start=1, end=5, first=3, last=5)]
    """
    final = max(0, length - room)  # the last window is as long as the others, so that its tokens have more context
    starts = [*range(0, final, room - overlap), final]
    # halfway between the end of one window and the start of the next
    bounds = [0, *((start + room + following + 1) // 2 for start, following in itertools.pairwise(starts)), length]
    return [_Span(start, min(start + room, length), *bounds[k : k + 2]) for k, start in enumerate(starts)]


def room_for(max_length: int, around: tuple[int, int], overlap: int, section: str = "") -> int:
    """Return the number of text tokens in a window, excluding special tokens; raise if a window adds no new tokens."""
    room = max_length - sum(around)
    if room <= overlap:
        text = f"max_length = {max_length} has room for {max(0, room)} tokens of text: with overlap = {overlap}"
        hint = "increase max_length, or reduce overlap"
        raise AlchemyError(f"{text}, a window adds no new tokens", section=section, hint=hint)
    return room


class _WindowPipe(FieldMaker, DataPipeline):
    """Implementation shared by Windows and WindowsStream."""

    def __init__(self, datapipe: Any, *, max_length: PositiveInt, overlap: NonNegativeInt) -> None:
        super().__init__(check_index(self, datapipe))
        self.max_length, self.overlap = max_length, overlap
        self.encode = _encoder_of(self)
        self.head, self.tail = self.encode.places.around
        self.room = room_for(max_length, self.encode.places.around, overlap)
        takes = {made.parameter: (made.name, made.kind) for made in self.encode.makes}
        makes = [MadeField("window_of", OF, None), MadeField("window_start", START, None), MadeField("owned", OWNED, 0)]
        self.declare(takes, makes)

    def padding(self) -> dict[str, int]:
        return super().padding() | self.pads()

    def spans_of(self, sample: Mapping[str, Any]) -> list[_Span]:
        length = len(field_of(sample, self.encode.to, self)) - self.head - self.tail
        return spans(length, self.room, self.overlap)

    def window(self, sample: Mapping[str, Any], number: int, span: _Span) -> dict[str, Any]:
        """Return the sample of one window: the special tokens and its part of the text."""
        length = len(sample[self.encode.to])
        shown_T = np.r_[: self.head, self.head + span.start : self.head + span.end, length - self.tail : length]
        place_T = shown_T - self.head
        owned_T = (span.first <= place_T) & (place_T < span.last)
        parts = {made.name: np.asarray(field_of(sample, made.name, self))[shown_T] for made in self.encode.makes}
        if isinstance(self.encode, Wordwise):
            for name in self.encode.align.values():
                parts[name] = np.where(owned_T, parts[name], self.encode.ignore)
        made = {OF: number, START: span.start, OWNED: owned_T.astype(np.int64)}
        return self.add_fields(sample, made) | parts


@DataPipeline.register()
class Windows(_WindowPipe, LstDataPipeline):
    """Cuts samples into windows of at most `max_length` tokens; consecutive windows share `overlap` tokens.

    Place it after Encode or EncodeWords. It reads all samples when it is built to count the windows.
    """

    def __init__(self, datapipe: Any, *, max_length: PositiveInt, overlap: NonNegativeInt) -> None:
        super().__init__(datapipe, max_length=max_length, overlap=overlap)
        self.ends = np.cumsum([len(self.spans_of(datapipe[number])) for number in range(len(datapipe))])

    def __getitem__(self, index: int) -> Any:
        number, which = self._locate(index)
        sample = self.datapipe[number]
        return self.window(sample, number, self.spans_of(sample)[which])

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def where(self, index: int) -> str:
        return where_in(self.datapipe, self._locate(index)[0])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the sample of a window, and the position of the window within that sample."""
        index = range(len(self))[index]
        number = int(np.searchsorted(self.ends, index, side="right"))
        return number, index - (int(self.ends[number - 1]) if number else 0)


@DataPipeline.register()
class WindowsStream(_WindowPipe, ItrDataPipeline):
    """Streaming version of Windows."""

    def __iter__(self) -> Iterator[Any]:
        for number, sample in enumerate_samples(self.datapipe):
            for span in self.spans_of(sample):
                yield self.window(sample, number, span)


def _encoder_of(pipe: DataPipeline) -> Texts | Wordwise:
    """Return the encoder whose rows are cut; only pipes that leave samples unchanged may come in between."""
    name, link = type(pipe).__name__, pipe.datapipe
    while isinstance(link, DataPipeline) and link.keeps:
        link = link.datapipe
    if not isinstance(link, Texts | Wordwise):
        text = f"{name} needs alchemy.pipeline.encode.Encode or EncodeWords before it, got {title(link)}"
        raise AlchemyError(text, hint="move other pipes before Encode or after the windows")
    if isinstance(link, Texts) and (link.pair or link.spans):
        text = f"{name} supports a single text with token-level fields, but {title(link)} has "
        hint = "set `long` there instead, or convert spans to tags and use EncodeWords"
        raise AlchemyError(text + ("pair" if link.pair else "spans"), hint=hint)
    if link.max_length:
        text = f"{title(link)} has max_length = {link.max_length}, so long texts never reach the windows"
        raise AlchemyError(text, hint=f"set max_length only in {name}")
    return link
