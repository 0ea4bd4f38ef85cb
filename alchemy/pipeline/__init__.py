"""Base classes for data, output, evaluation and schedule pipes, and the builder of data pipe chains."""

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
    "apply_to_inputs",
    "build_datapipes",
    "resolve_pipe",
    "where_before",
    "where_in",
]


class DataPipeline(Registrable, Link):
    """A data pipe: one link in a chain, which reads from the previous link, `self.datapipe`.

    Pipes are pickled and sent to loader workers, so they must not store the run or any unpicklable objects.
    A pipe may declare its input fields in `takes` and its output fields in `gives`. Each field maps to a dtype, a dtype
    with a shape such as `int64[T]`, or "" for any type; the fields are checked when a chain is built. Set `keeps` if
    the pipe does not change samples, `maps` if it computes each sample from exactly one input sample (prediction can
    then apply it to new inputs), `splits` if it shards the data among workers, and `begins` if it reads files instead
    of another pipe.
    """

    maps: bool = False
    begins: bool = False

    def __init__(self, datapipe: object = None, **kwargs: Any) -> None:
        super().__init__()
        self.datapipe = datapipe
        _warn_unused(self, kwargs)

    @classmethod
    def read_inputs(cls, table: Mapping[str, Any], questions: Any, *, section: str) -> Any:
        """Return prediction inputs as a processor with the options in `table` would read them from a file."""
        return questions

    def require_single_source(self) -> None:
        """Unwrap `datapipe` if it is a list or dict with one pipe; raise if it contains several."""
        above = list(self.datapipe.values()) if isinstance(self.datapipe, Mapping) else self.datapipe
        if not isinstance(above, list) or not any(isinstance(source, Link) for source in above):
            return
        if len(above) > 1:
            text = f"{type(self).__name__} reads from one pipe, got {len(above)}"
            raise AlchemyError(text, hint="join them first with alchemy.pipeline.itr.Concat or Sample")
        self.datapipe = above[0]


class ItrDataPipeline(DataPipeline, IterableDataset[Any]):
    """An iterable-style pipe: define `__iter__`."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")


class LstDataPipeline(DataPipeline, Dataset[Any]):
    """A map-style pipe: define `__getitem__` and `__len__`."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, index)")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__(self)")

    def __iter__(self) -> Iterator[Any]:
        for index in range(len(self)):
            yield self[index]


class _InRun:
    """Base class for pipes that need the current run; warns about unused keyword arguments instead of raising."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__()
        _warn_unused(self, kwargs)

    @property
    def run(self) -> Run:
        return current_run()


class OutputPipeline(Registrable, _InRun):
    """An evaluation step that processes the model outputs of a batch before they are scored or written.

    Set `keeps` if the pipe collects or writes the outputs and returns them unchanged; such pipes are
    skipped when predicting single inputs.
    """

    keeps: bool = False

    def __call__(self, outputs: Any, inputs: Any) -> Any:
        """Process the `outputs` of the batch `inputs` and return the outputs for the next pipe."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, outputs, inputs)")


class EvalPipeline(Registrable, _InRun):
    """A step at the end of an evaluation, such as a metric, a log line or a checkpoint."""

    produces: ClassVar[tuple[str, ...]]  # names of the metrics it adds; `alchemy check` validates monitors against them

    def begin_eval(self, split: str, **kwargs: Any) -> None:
        """Prepare for an evaluation; called before the first batch."""

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        """Receive the results of the previous pipes as keyword arguments; return the results for the next pipe."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, split, **kwargs)")


class SchedPipeline(Registrable, _InRun):
    """A callback in the training schedule; subclass one or more of the four classes below."""

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        """Return the keyword arguments for the next pipe; step pipes receive but do not return `batch` or `outputs`."""
        raise NotImplementedError(f"{type(self).__name__} must define __call__(self, **kwargs)")


class BeginEpochPipeline(SchedPipeline):
    """A callback that runs before each epoch."""


class EndEpochPipeline(SchedPipeline):
    """A callback that runs after each epoch."""


class BeginStepPipeline(SchedPipeline):
    """A callback that runs before each training step with `batch`, which it may modify."""


class EndStepPipeline(SchedPipeline):
    """A callback that runs after each training step with the model's `outputs`."""


def where_in(dataset: object, number: int) -> str:
    """Return the file and line of a sample, or its index if the dataset does not track them."""
    return link_of(dataset).where(number)


def where_before(self: Any, index: int) -> str:
    """Implement `where` for a pipe that preserves sample indices."""
    return where_in(self.datapipe, range(len(self))[index])


def build_datapipes(pipes: Sequence[Mapping[str, Any]], *, section: str = "", seed: int | None = None) -> Any:
    """Build a chain of pipes from a list of tables; each pipe reads from the previous one.

    The first pipe gets `datapipe` from its own table. Pipes that read data in their constructor, such as ItrToLst, use
    the sample order for `seed`, which defaults to the seed of the current run.
    """
    if not isinstance(pipes, Sequence) or isinstance(pipes, str) or not pipes:
        raise AlchemyError("'pipes' must be a list of tables, one per pipe", section=section)
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
        fields = _check_fields(link_of(built), fields, table, name)
    return built


def apply_to_inputs(pipes: Sequence[Mapping[str, Any]], questions: Any, *, section: str = "") -> Any:
    """Apply a split's processor and per-sample pipes to prediction inputs.

    Pipes that only select or reorder samples are skipped. A pipe that may change samples in any other way is
    skipped with a warning, and so is every mapping pipe if the chain does not begin with a processor.
    """
    kinds = [resolve_pipe(table) for table in pipes]
    built = kinds[0].read_inputs(pipes[0], questions, section=f"{section}.pipes.0")
    left = []
    for number, (table, kind) in enumerate(zip(pipes, kinds)):
        name = f"{section}.pipes.{number}"
        if kinds[0].begins and kind.maps and issubclass(kind, LstDataPipeline):
            built = _build_pipe(table, built, first=False, section=name)
            set_place(built, where_of(table), name)
        elif kind.maps or (kinds[0].begins and not (kind.begins or kind.keeps)):
            left.append(str(table["type"]))
    if left:
        text = "prediction skips {} of [{}]: apply the same preprocessing to the inputs yourself"
        logger.warning(text, ", ".join(left), section)
    return built


def resolve_pipe(table: Mapping[str, Any]) -> Any:
    """Return the class of a pipe, or DataPipeline if it cannot be imported."""
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
        text = f"{table['type']} must be the first pipe of a chain: it reads files, not the pipe before it"
        raise AlchemyError(text, where=where_of(table), section=section, hint=hint)
    try:
        pipe = construct(kind, table, given={} if first else {"datapipe": before}, section=section)
    except AlchemyError as error:
        cause = error.__cause__
        if not isinstance(cause, Exception) or error.problem.section != section:
            raise
        # a pipe that reads data in its constructor may fail because of an earlier pipe
        culprit = locate_error(cause, verb="could not be built")
        raise error if culprit is None else add_location(culprit, where_of(table), section) from cause
    if not first and link_of(pipe).datapipe is None:
        pipe.datapipe = before  # its constructor did not pass datapipe to super().__init__
    return pipe


def _check_fields(pipe: Link, fields: Mapping[str, str] | None, table: Any, section: str) -> Mapping[str, str] | None:
    """Return the declared output fields of a pipe; raise if an input field is missing or has the wrong type."""
    for name, kind in (pipe.takes or {}).items() if fields is not None else ():
        have = (fields or {}).get(name)
        if have is None or not fits(kind, have):
            lack = f"the field {name!r}" if have is None else f"{name!r} as {kind}"
            there = ", ".join(f"{key}: {value or 'any'}" for key, value in (fields or {}).items()) or "no field"
            raise AlchemyError(
                f"{table['type']} expects {lack}, but receives {there}", where=where_of(table), section=section
            )
    return pipe.gives if pipe.gives is not None or not pipe.keeps else fields


def _warn_unused(part: object, kwargs: Mapping[str, Any]) -> None:
    """Warn about keyword arguments that the pipe does not use; a custom pipe may forward its whole table."""
    unused = [key for key in kwargs if key != "type"]
    if unused:
        logger.warning("{} does not use {}", type(part).__name__, ", ".join(map(repr, unused)))


def __getattr__(name: str) -> Any:
    # imported on first access, since itr imports this module
    if name == "Batch":
        return importlib.import_module("alchemy.pipeline.itr").Batch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
