"""Long rows of tokens as several short ones that overlap, in which each token counts once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline, where_in
from alchemy.pipeline.encode import FieldMaker, MadeField, Texts, Wordwise, enumerate_samples, with_index
from alchemy.pipeline.itr import field_of

__all__ = ["Windows", "WindowsStream"]

OF, START, OWNED = "window_of", "window_start", "owned"


class _Span(NamedTuple):
    """The tokens `[start, end)` of a text that a window shows, and those of them, `[first, last)`, that are its own."""

    start: int
    end: int
    first: int
    last: int


def spans(length: int, room: int, overlap: int) -> list[_Span]:
    """The windows of a text; a token is owned by the one where it is farthest from a cut, the earlier of two.

    >>> spans(5, room=4, overlap=2)
    [_Span(start=0, end=4, first=0, last=3), _Span(start=1, end=5, first=3, last=5)]
    """
    final = max(0, length - room)  # the last window is as long as the others, so that its tokens have more around them
    starts = [*range(0, final, room - overlap), final]
    # halfway between the cut at the end of a window and the one at the beginning of the next
    bounds = [0, *((start + room + following + 1) // 2 for start, following in itertools.pairwise(starts)), length]
    return [_Span(start, min(start + room, length), *bounds[k : k + 2]) for k, start in enumerate(starts)]


def room_for(max_length: int, around: tuple[int, int], overlap: int, section: str = "") -> int:
    """How many tokens of a text a window shows between its special tokens; each must have some that are new."""
    room = max_length - sum(around)
    if room <= overlap:
        text = f"max_length = {max_length} has room for {max(0, room)} tokens of a text: overlap = {overlap}"
        hint = "set a larger max_length, or a smaller overlap"
        raise AlchemyError(f"{text} leaves nothing new", section=section, hint=hint)
    return room


class _Cutting(FieldMaker, DataPipeline):
    """What both forms of Windows do to a sample."""

    def __init__(self, datapipe: Any, *, max_length: PositiveInt, overlap: NonNegativeInt) -> None:
        super().__init__(with_index(self, datapipe))
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
        """What a window shows of a sample: its special tokens, and the part of the text between them."""
        length = len(sample[self.encode.to])
        shown_T = np.r_[: self.head, self.head + span.start : self.head + span.end, length - self.tail : length]
        place_T = shown_T - self.head
        owned_T = (span.first <= place_T) & (place_T < span.last)
        parts = {made.name: np.asarray(field_of(sample, made.name, self))[shown_T] for made in self.encode.makes}
        if isinstance(self.encode, Wordwise):
            for name in self.encode.align.values():
                parts[name] = np.where(owned_T, parts[name], self.encode.ignore)
        made = {OF: number, START: span.start, OWNED: owned_T.astype(np.int64)}
        return self.extended(sample, made) | parts


@DataPipeline.register()
class Windows(_Cutting, LstDataPipeline):
    """Samples of at most `max_length` tokens: a long text becomes several, which share `overlap` tokens.

    Stands behind Encode or EncodeWords, and reads all samples when it is built: their lengths tell how many it gives.
    """

    def __init__(self, datapipe: Any, *, max_length: PositiveInt, overlap: NonNegativeInt) -> None:
        super().__init__(datapipe, max_length=max_length, overlap=overlap)
        self.ends = np.cumsum([len(self.spans_of(datapipe[number])) for number in range(len(datapipe))])

    def __getitem__(self, index: int) -> Any:
        number, which = self._found(index)
        sample = self.datapipe[number]
        return self.window(sample, number, self.spans_of(sample)[which])

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def where(self, index: int) -> str:
        return where_in(self.datapipe, self._found(index)[0])

    def _found(self, index: int) -> tuple[int, int]:
        """The sample that a window is of, and which of its windows it is."""
        index = range(len(self))[index]
        number = int(np.searchsorted(self.ends, index, side="right"))
        return number, index - (int(self.ends[number - 1]) if number else 0)


@DataPipeline.register()
class WindowsStream(_Cutting, ItrDataPipeline):
    """Windows for a stream."""

    def __iter__(self) -> Iterator[Any]:
        for number, sample in enumerate_samples(self.datapipe):
            for span in self.spans_of(sample):
                yield self.window(sample, number, span)


def _encoder_of(pipe: DataPipeline) -> Texts | Wordwise:
    """The pipe that made the rows which are cut in windows; between them nothing changes a sample."""
    name, link = type(pipe).__name__, pipe.datapipe
    while isinstance(link, DataPipeline) and link.keeps:
        link = link.datapipe
    if not isinstance(link, Texts | Wordwise):
        text = f"{name} needs alchemy.pipeline.encode.Encode or EncodeWords before it, not {title(link)}"
        raise AlchemyError(text, hint="other pipes belong before Encode, or behind the windows")
    if isinstance(link, Texts) and (link.pair or link.spans):
        text = f"{name} cuts one text and what is said of single tokens, and {title(link)} has "
        hint = "set `long` there, or carry tags over with EncodeWords"
        raise AlchemyError(text + ("pair" if link.pair else "spans"), hint=hint)
    if link.max_length:
        text = f"{title(link)} has max_length = {link.max_length}: what it cuts off, or refuses, is in no window"
        raise AlchemyError(text, hint=f"give max_length to {name} only")
    return link
