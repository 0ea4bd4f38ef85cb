"""Whose error it was: the pipe that raised it, or cannot be pickled, and the line of the project's code."""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType, FunctionType, TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from alchemy.data.padding import value_text
from alchemy.data.pipe_chain import Link, link_of, members, title, walk
from alchemy.errors import AlchemyError, BadSample, innermost, origin_of, recognize

WIDTH = 120
_places: WeakKeyDictionary[Any, tuple[str, str]] = WeakKeyDictionary()  # `(file:line, section)` of pipes in a config
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)
_WORKER = re.compile(r"^Caught (\S+) in (?:DataLoader worker process|pin memory thread)")


def locate_error(error: BaseException, dataset: object = None, *, verb: str = "failed") -> AlchemyError | None:
    """An error of reading data as one that names pipe, line and sample; None where neither pipe nor line is known.

    An error of ours keeps its text and gets the pipe's place in the config. `verb` is what befell a pipe without one:
    it has yet to be built.
    """
    of_worker = _WORKER.match(str(error))
    if of_worker:
        return None if isinstance(error, AlchemyError) else _from_text(str(error), of_worker[1], dataset)
    pipe, frame = _pipe_of(error.__traceback__)
    where, section = _place_of(pipe)
    if isinstance(error, AlchemyError):
        problem = error.problem
        if not section or problem.section or problem.where or type(error) is not AlchemyError:
            return None
        return AlchemyError(problem.message, where=where, section=section, hint=problem.hint)
    origin = origin_of(error)
    if pipe is None and not origin:
        return None
    verb = "failed" if section else verb
    hint = _sample(frame) if frame is not None and verb == "failed" else ""
    told = recognize(error)
    if told is not None:
        what = "loading a batch" if pipe is None else title(pipe)
        text = f"{what} {verb} at {told.problem.where}: {told.problem.message}"
        return AlchemyError(text, where=where, section=section, hint=told.problem.hint)
    text = _text(pipe, verb, origin, f"{type(error).__name__}: {error}")
    return AlchemyError(text, where=where, section=section, hint=hint)


def name_samples(error: BaseException, dataset: object, ids: Sequence[Any] | None) -> str:
    """The samples of a batch that failed, `, samples 3, 4`; an error in one row is told where that sample is."""
    if not ids:
        return ""
    if isinstance(error, BadSample) and error.row < len(ids):
        error.place(link_of(dataset).where(ids[error.row]))
    return f", samples {', '.join(map(str, ids[:20]))}{', ..' if len(ids) > 20 else ''}"


def set_place(pipe: object, where: str, section: str) -> None:
    """Lets a pipe know where the config describes it."""
    with contextlib.suppress(TypeError):  # a class with slots, or one that cannot be hashed
        _places[pipe] = (where, section)


def _place_of(pipe: object) -> tuple[str, str]:
    with contextlib.suppress(TypeError):
        return _places.get(pipe, ("", ""))
    return "", ""


def _text(pipe: object, verb: str, origin: str, error: str) -> str:
    what = "loading a batch" if pipe is None else title(pipe)
    return f"{what} {verb}{f' at {origin}' if origin else ''}: {error.strip()}"


def _pipe_of(trace: TracebackType | None) -> tuple[Any, FrameType | None]:
    """The pipe in whose method an error happened, and that call: the innermost."""
    found: tuple[Any, FrameType | None] = (None, None)
    for frame, _ in traceback.walk_tb(trace):
        owner = frame.f_locals.get("self")
        if _is_pipe(owner):
            found = owner, frame
    return found


def _is_pipe(value: object) -> bool:
    return isinstance(value, Dataset | Link)


def _sample(frame: FrameType) -> str:
    """What a pipe was at: the first of its variables that can be a sample, else a number."""
    own = [(name, frame.f_locals[name]) for name in frame.f_code.co_varnames if name in frame.f_locals]
    for kinds in ((str, bytes, Mapping, list, tuple, np.ndarray, Tensor), (int,)):
        for name, value in own:
            if isinstance(value, kinds) and frame.f_code.co_name != "__init__":
                return f"{name} = {value_text(value, WIDTH)}"
    return ""


def _from_text(text: str, kind: str, dataset: object) -> AlchemyError | None:
    """As `locate_error`, for what a worker tells: a traceback in words."""
    words = text.rpartition("Traceback (most recent call last):")[2]
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(words)]
    last = re.search(rf"^(?:\w+\.)*{re.escape(kind)}(?:: |$)", words, re.MULTILINE)
    pipe = next((pipe for frame in reversed(frames) for pipe in walk(dataset) if _is_in(pipe, *frame)), None)
    origin = innermost([(file, line) for file, line, _ in frames])
    if last is None or (pipe is None and not origin):
        return None
    where, section = _place_of(pipe)
    return AlchemyError(_text(pipe, "failed", origin, words[last.start() :]), where=where, section=section)


def _is_in(pipe: object, file: str, line: int, name: str) -> bool:
    """Whether a line of a file belongs to the method `name` of a pipe."""
    if not _is_pipe(pipe):
        return False
    methods = [vars(kind).get(name) for kind in type(pipe).__mro__]
    codes = [method.__code__ for method in methods if isinstance(method, FunctionType)]
    return any(code.co_filename == file and line in (row[2] for row in code.co_lines()) for code in codes)


def unpicklable(pipe: object) -> Iterator[tuple[str, str]]:
    """The members of a pipe that cannot be pickled, each with the reason; not those of the pipes before it."""
    for name, value in members(pipe).items():
        if name not in ("datapipe", "datapipes", "dataset", "datasets"):
            try:
                pickle.Pickler(_Nowhere(), protocol=5).dump(value)
            except Exception as error:  # pickling runs any __reduce__, which may raise anything
                yield name, str(error).partition("\n")[0]


class _Nowhere(io.RawIOBase):
    """A file that keeps nothing: pickling into it costs time but no memory."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)
