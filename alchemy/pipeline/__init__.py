"""The contracts of the small steps that data, outputs, scores and schedules pass through."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from loguru import logger
from torch.utils.data import Dataset, IterableDataset

from alchemy.config.field_types import fits
from alchemy.context import Run, current_run, find_run
from alchemy.data.pipe_chain import Link, link_of, seed_chain
from alchemy.data.pipe_errors import locate_error, set_place
from alchemy.errors import AlchemyError
from alchemy.registry import Registrable, add_location, construct, where_of

if TYPE_CHECKING:
    from alchemy.pipeline.itr import Batch

__all__ = [
    "Batch",
    "BeginEpochPipeline",
    "BeginStepPipeline",
    "DataPipeline",
    "EndEpochPipeline",
    "EndStepPipeline",
    "EvalPipeline",
    "ItrDataPipeline",
    "LstDataPipeline",
    "OutputPipeline",
    "SchedPipeline",
    "build_datapipes",
    "over_questions",
    "resolve_pipe",
    "where_before",
    "where_in",
]


class DataPipeline(Registrable, Link):
    """A link of a chain that data flows through; it reads from `self.datapipe`, the link before it.

    Pipes travel to loader workers: keep nothing in them that cannot be pickled, and no run.
    A pipe may declare the fields of the samples it `takes` and `gives`, each with a dtype, a dtype and a shape such as
    `int64[T]`, or "" for any; chains are checked when they are built. A pipe that `keeps` gives what it took; one that
    `maps` makes each sample of one sample and nothing else, so that questions can go through it. `splits` marks one
    that shares out the data, `begins` one that reads files and no other pipe.
    """

    maps: bool = False
    begins: bool = False

    def __init__(self, datapipe: object = None, **kwargs: Any) -> None:
        super().__init__()
        self.datapipe = datapipe
        _say_unused(self, kwargs)

    def require_single_source(self) -> None:
        """Raises when `datapipe` is several pipes, in a list or a dict; of a single one it takes that."""
        above = list(self.datapipe.values()) if isinstance(self.datapipe, Mapping) else self.datapipe
        if not isinstance(above, list) or not any(isinstance(source, Link) for source in above):
            return
        if len(above) > 1:
            text = f"{type(self).__name__} reads one pipe, not {len(above)}"
            raise AlchemyError(text, hint="join them before, with alchemy.pipeline.itr.Concat or Sample")
        self.datapipe = above[0]


class ItrDataPipeline(DataPipeline, IterableDataset[Any]):
    """A pipe that is read from its start to its end: define `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class LstDataPipeline(DataPipeline, Dataset[Any]):
    """A pipe with an index: define `__getitem__` and `__len__`."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, index)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]


class _InRun:
    """What works inside a run, and may be handed a whole table."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__()
        _say_unused(self, kwargs)

    @property
    def run(self) -> Run:
        return current_run()


class OutputPipeline(Registrable, _InRun):
    """A step between what the model gave for a batch and what is scored or written; runs in evaluation only.

    One that `keeps` collects or writes the outputs and hands them on as they are: single questions do without it.
    """

    keeps: bool = False

    def __call__(self, outputs: Any, inputs: Any) -> Any:
        """Takes the outputs and the batch they belong to; returns the outputs for the next pipe."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, outputs, inputs)")


class EvalPipeline(Registrable, _InRun):
    """A step at the end of an evaluation: a score, a log line, a checkpoint."""

    produces: ClassVar[tuple[str, ...]]  # the scores that it adds; `alchemy check` compares monitors with them

    def begin_eval(self, split: str, **kwargs: Any) -> None:
        """Called before the first batch."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        """Takes what the pipes before it found as keywords; returns the keywords of the next."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, split, **kwargs)")


class SchedPipeline(Registrable, _InRun):
    """A callback of the training schedule; a class of several of the four kinds below is called at each of them."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        """Returns the keywords of the next pipe; step pipes get `batch` or `outputs` too, and do not return it."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, **kwargs)")


class BeginEpochPipeline(SchedPipeline):
    """Called before an epoch."""


class EndEpochPipeline(SchedPipeline):
    """Called after an epoch."""


class BeginStepPipeline(SchedPipeline):
    """Called before a training step with `batch`, which it may change."""


class EndStepPipeline(SchedPipeline):
    """Called after a training step with the model's `outputs`."""


def where_in(dataset: object, number: int) -> str:
    """File and line of a sample of a data set, if it can tell; else its number."""
    return link_of(dataset).where(number)


def where_before(self: Any, index: int) -> str:
    """The `where` of a pipe whose samples have the numbers that they had before it."""
    return where_in(self.datapipe, range(len(self))[index])


def build_datapipes(pipes: Sequence[Mapping[str, Any]], *, section: str = "", seed: int | None = None) -> Any:
    """The data set that a list of tables describes: each pipe reads from the one before it.

    The first gets `datapipe` from its own table. Pipes that read while they are built, as ItrToLst does, read in the
    order of `seed`: by default that of the current run.
    """
    if not isinstance(pipes, Sequence) or isinstance(pipes, str) or not pipes:
        raise AlchemyError("'pipes' must be a list of tables, one for each pipe", section=section)
    if seed is None:
        run = find_run()
        seed = 0 if run is None else run.seed
    built: Any = None
    fields: Mapping[str, str] | None = None
    for number, table in enumerate(pipes):
        name = f"{section}.pipes.{number}" if section else f"pipes.{number}"
        built = _build_pipe(table, built, first=number == 0, section=name)
        set_place(built, where_of(table), name)
        seed_chain(built, seed)
        fields = _flow(link_of(built), fields, table, name)
    return built


def over_questions(pipes: Sequence[Mapping[str, Any]], questions: Any, *, section: str = "") -> Any:
    """The samples that somebody asks about, as the pipes of a split make them: those behind a processor that `maps`.

    Pipes that only choose or order samples are left out. So is one that may change them in another way, or in a chain
    that reads rows of which nobody knows when they become samples; a warning names it.
    """
    kinds = [resolve_pipe(table) for table in pipes]
    built, left = questions, []
    for number, (table, kind) in enumerate(zip(pipes, kinds)):
        name = f"{section}.pipes.{number}"
        if kinds[0].begins and kind.maps and issubclass(kind, LstDataPipeline):
            built = _build_pipe(table, built, first=False, section=name)
            set_place(built, where_of(table), name)
        elif kind.maps or (kinds[0].begins and not (kind.begins or kind.keeps)):
            left.append(str(table["type"]))
    if left:
        text = "questions do not go through {} of [{}]: what it does to texts has to be done to questions too"
        logger.warning(text, ", ".join(left), section)
    return built


def resolve_pipe(table: Mapping[str, Any]) -> Any:
    """The class of a pipe; of one whose code is not here nothing is known."""
    try:
        return DataPipeline.resolve_registered_module(table["type"])
    except AlchemyError:
        return DataPipeline


def _build_pipe(table: Mapping[str, Any], before: Any, *, first: bool, section: str) -> Any:
    if not isinstance(table, Mapping) or "type" not in table:
        raise AlchemyError("a pipe needs a 'type'", where=where_of(table), section=section)
    try:
        kind: Any = DataPipeline.resolve_registered_module(table["type"])
    except AlchemyError as error:
        raise add_location(error, where_of(table), section) from error
    if not first and kind.begins:
        hint = "put it first, or join chains with alchemy.pipeline.itr.Concat"
        text = f"{table['type']} begins a chain: it reads files, and nothing from the pipe before it"
        raise AlchemyError(text, where=where_of(table), section=section, hint=hint)
    try:
        pipe = construct(kind, table, given={} if first else {"datapipe": before}, section=section)
    except AlchemyError as error:
        cause = error.__cause__
        if not isinstance(cause, Exception) or error.problem.section != section:
            raise
        # a pipe that reads while it is built is not to blame for those before it
        culprit = locate_error(cause, verb="could not be built")
        raise error if culprit is None else add_location(culprit, where_of(table), section) from cause
    if not first and link_of(pipe).datapipe is None:
        pipe.datapipe = before  # its constructor took no argument, or forgot to hand it on
    return pipe


def _flow(pipe: Link, fields: Mapping[str, str] | None, table: Any, section: str) -> Mapping[str, str] | None:
    """The fields that leave a pipe, as far as they are declared; an error where it takes what it is not given."""
    for name, kind in (pipe.takes or {}).items() if fields is not None else ():
        have = (fields or {}).get(name)
        if have is None or not fits(kind, have):
            lack = f"the field {name!r}" if have is None else f"{name!r} as {kind}"
            there = ", ".join(f"{key}: {value or 'any'}" for key, value in (fields or {}).items()) or "no field"
            raise AlchemyError(
                f"{table['type']} takes {lack}, but it is given {there}", where=where_of(table), section=section
            )
    return pipe.gives if pipe.gives is not None or not pipe.keeps else fields


def _say_unused(part: object, kwargs: Mapping[str, Any]) -> None:
    """A pipe of a project may hand its whole table on; what nobody reads is said once, not refused."""
    unused = [key for key in kwargs if key != "type"]
    if unused:
        logger.warning("{} does not use {}", type(part).__name__, ", ".join(map(repr, unused)))


def __getattr__(name: str) -> Any:
    # itr imports this module, so that its Batch can only be fetched when somebody asks for it
    if name == "Batch":
        return importlib.import_module("alchemy.pipeline.itr").Batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
