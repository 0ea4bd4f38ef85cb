"""Find the pipe and the line of project code that caused an error."""

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
    """Return an error that names the pipe, line and sample; None if neither pipe nor line is known.

    An AlchemyError keeps its message and gets the location of the pipe in the config. `verb` describes what happened to
    a pipe that has no such location, for example because it is still being constructed.
    """
    of_worker = _WORKER.match(str(error))
    if of_worker:
        return None if isinstance(error, AlchemyError) else _locate_worker_error(str(error), of_worker[1], dataset)
    pipe, frame = _find_pipe(error.__traceback__)
    where, section = _get_place(pipe)
    if isinstance(error, AlchemyError):
        problem = error.problem
        if not section or problem.section or problem.where or type(error) is not AlchemyError:
            return None
        return AlchemyError(problem.message, where=where, section=section, hint=problem.hint)
    origin = origin_of(error)
    if pipe is None and not origin:
        return None
    verb = "failed" if section else verb
    hint = _describe_sample(frame) if frame is not None and verb == "failed" else ""
    known = recognize(error)
    if known is not None:
        what = "loading a batch" if pipe is None else title(pipe)
        text = f"{what} {verb} at {known.problem.where}: {known.problem.message}"
        return AlchemyError(text, where=where, section=section, hint=known.problem.hint)
    text = _format_error(pipe, verb, origin, f"{type(error).__name__}: {error}")
    return AlchemyError(text, where=where, section=section, hint=hint)


def name_samples(error: BaseException, dataset: object, ids: Sequence[Any] | None) -> str:
    """Return the samples of a failed batch as `, samples 3, 4`; add the origin of the sample to a BadSample error."""
    if not ids:
        return ""
    if isinstance(error, BadSample) and error.row < len(ids):
        error.place(link_of(dataset).where(ids[error.row]))
    return f", samples {', '.join(map(str, ids[:20]))}{', ..' if len(ids) > 20 else ''}"


def set_place(pipe: object, where: str, section: str) -> None:
    """Record where the config defines a pipe."""
    with contextlib.suppress(TypeError):  # a class with slots, or one that cannot be hashed
        _places[pipe] = (where, section)


def _get_place(pipe: object) -> tuple[str, str]:
    with contextlib.suppress(TypeError):
        return _places.get(pipe, ("", ""))
    return "", ""


def _format_error(pipe: object, verb: str, origin: str, error: str) -> str:
    what = "loading a batch" if pipe is None else title(pipe)
    return f"{what} {verb}{f' at {origin}' if origin else ''}: {error.strip()}"


def _find_pipe(trace: TracebackType | None) -> tuple[Any, FrameType | None]:
    """Return the innermost pipe in whose method an error occurred, and the frame of that call."""
    found: tuple[Any, FrameType | None] = (None, None)
    for frame, _ in traceback.walk_tb(trace):
        owner = frame.f_locals.get("self")
        if _is_pipe(owner):
            found = owner, frame
    return found


def _is_pipe(value: object) -> bool:
    return isinstance(value, Dataset | Link)


def _describe_sample(frame: FrameType) -> str:
    """Describe the sample that a pipe was processing: the first local that looks like a sample, or else an int."""
    own = [(name, frame.f_locals[name]) for name in frame.f_code.co_varnames if name in frame.f_locals]
    for kinds in ((str, bytes, Mapping, list, tuple, np.ndarray, Tensor), (int,)):
        for name, value in own:
            if isinstance(value, kinds) and frame.f_code.co_name != "__init__":
                return f"{name} = {value_text(value, WIDTH)}"
    return ""


def _locate_worker_error(text: str, kind: str, dataset: object) -> AlchemyError | None:
    """Like `locate_error`, but for the traceback text from a worker."""
    trace = text.rpartition("Traceback (most recent call last):")[2]
    frames = [(file, int(line), name) for file, line, name in _FRAME.findall(trace)]
    last = re.search(rf"^(?:\w+\.)*{re.escape(kind)}(?:: |$)", trace, re.MULTILINE)
    pipe = next((pipe for frame in reversed(frames) for pipe in walk(dataset) if _is_in(pipe, *frame)), None)
    origin = innermost([(file, line) for file, line, _ in frames])
    if last is None or (pipe is None and not origin):
        return None
    where, section = _get_place(pipe)
    return AlchemyError(_format_error(pipe, "failed", origin, trace[last.start() :]), where=where, section=section)


def _is_in(pipe: object, file: str, line: int, name: str) -> bool:
    """Return whether a line of a file belongs to the method `name` of a pipe."""
    if not _is_pipe(pipe):
        return False
    methods = [vars(kind).get(name) for kind in type(pipe).__mro__]
    codes = [method.__code__ for method in methods if isinstance(method, FunctionType)]
    return any(code.co_filename == file and line in (row[2] for row in code.co_lines()) for code in codes)


def unpicklable(pipe: object) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a pipe that cannot be pickled, with the reason; its sources are not checked."""
    for name, value in members(pipe).items():
        if name not in ("datapipe", "datapipes", "dataset", "datasets"):
            try:
                pickle.Pickler(_Nowhere(), protocol=5).dump(value)
            except Exception as error:  # pickling runs any __reduce__, which may raise anything
                yield name, str(error).partition("\n")[0]


class _Nowhere(io.RawIOBase):
    """A file that discards everything, so pickling to it needs no memory."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)
