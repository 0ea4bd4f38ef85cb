"""Check the data of a task before the first step; errors include file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from torch import Tensor
from torch.utils.data import IterableDataset

from alchemy.data.messages import in_short, shorten
from alchemy.data.pipe_chain import title
from alchemy.data.sample_lengths import lengths_of
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.models.text_model import TextModel
from alchemy.pipeline import where_in
from alchemy.pipeline.encode import Encode, EncodeWords
from alchemy.progress import Bar
from alchemy.seeds import preserve_rng_state, set_current_sample

if TYPE_CHECKING:
    from alchemy.model import AlchemyModel
    from alchemy.tasks.supervised_task import SupervisedTask
    from alchemy.tasks.text_task import TextTask


class Samples(Protocol):
    """An indexable dataset."""

    def __getitem__(self, index: int, /) -> Any: ...
    def __len__(self) -> int: ...


def samples_of(source: Samples, most: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield the samples with their indices, without changing the state of the random generators."""
    with preserve_rng_state():
        for index in range(len(source))[:most]:
            set_current_sample(0, index)
            yield index, source[index]


def checked_samples(
    task: SupervisedTask, source: Samples, split: str, most: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield the samples with their indices; raise on a sample that is invalid or, in training, unlabeled."""
    for index, sample in samples_of(source, most):
        try:
            task.check(sample)
            if split == "train" and task.needs and not task.is_labeled(sample):
                hint = f"set its column in the processor: label = {task.target!r}"
                raise AlchemyError(f"no field {task.target!r} to learn from, only {in_short(sample)}", hint=hint)
        except AlchemyError as error:
            section, hint = f"task.datasets.{split}", error.problem.hint
            raise AlchemyError(
                error.problem.message, where=where_in(source, index), section=section, hint=hint
            ) from error
        yield index, sample


def check_indexed(task: SupervisedTask, source: object, split: str) -> None:
    if isinstance(source, IterableDataset):
        hint = "put alchemy.pipeline.lst.ItrToLst at the end of its pipes"
        text = f"{type(task).__name__} needs indexable data, but {title(source)} is a stream"
        raise AlchemyError(text, section=f"task.datasets.{split}", hint=hint)


def check_labels(task: TextTask, source: Samples, split: str) -> list[int]:
    """Check all samples of a split, raise on a label not seen in training, and return their lengths in characters."""
    known, sizes = set(task.labels), []
    for index, sample in checked_samples(task, source, split):
        sizes.append(sum(map(len, task.texts(sample))))
        for name in task.names(sample):
            if name not in known:
                raise unknown_label(task, name, where_in(source, index), split)
    return sizes


def unknown_label(task: SupervisedTask, name: object, where: str, split: str) -> AlchemyError:
    """Return the error for a label that does not occur in the training data."""
    return AlchemyError(
        f"the label {shorten(name)} is not a label of the training data",
        where=where,
        section=f"task.datasets.{split}",
        hint=did_you_mean(str(name)[:100], task.labels) or f"the labels are {in_short(task.labels)}",
    )


def check_lengths(encoded: Samples, options: Mapping[str, Any]) -> None:
    """Encode every sample once; raise on the first one that is too long."""
    if options.keys() & {"max_tokens", "max_sentences"}:
        lengths_of(encoded, options["length_of"])  # computed once and reused by the loader
        return
    with Bar("lengths of texts", len(encoded), Console(stderr=True)) as bar:
        for _ in samples_of(encoded):
            bar.step()


def encode_long(task: TextTask, source: Samples, encoded: Samples) -> None:
    """Encode the samples that may exceed the default length, to count how many are truncated.

    A text has at most as many tokens as bytes, so most samples do not need to be encoded.
    """
    room = encoded.places.room if isinstance(encoded, Encode | EncodeWords) else 0
    for index, sample in samples_of(source):
        if sum(len(text.encode("utf-8", "surrogatepass")) for text in task.texts(sample)) > room:
            encoded[index]


def check_fields(task: TextTask, model: AlchemyModel | None, encoded: Samples) -> None:
    """Raise if a TextModel reads a field that the samples of the task do not have."""
    if not isinstance(model, TextModel):
        return
    for _, sample in samples_of(encoded, 1):
        absent = [name for name in model.reads if name not in sample]
        if absent:
            ours, theirs = type(task).__name__, type(model).__name__
            text = f"{theirs} reads {absent[0]!r}, but the samples of {ours} have {in_short(sample)}"
            hint = f"use {theirs} with {model.expected_task} of the same `kind`"
            raise AlchemyError(text, section="model", hint=hint)


def check_logits(task: SupervisedTask, outputs: object, axis: int = -1) -> None:
    """Raise if the model returns no logits, or logits whose `axis` does not match the labels of the task."""
    name, model = type(task).__name__, type(task.run.model.module).__name__
    if not isinstance(outputs, Mapping):
        return
    if "logits" not in outputs:
        text = f"{name} reads 'logits', but {model} returned {in_short(outputs) or 'nothing'}"
        raise AlchemyError(text, section="model", hint="return a dict with 'logits'")
    logits = outputs["logits"]
    if task.labels and isinstance(logits, Tensor) and _length(logits, axis) != len(task.labels):
        text = f"the logits of {model} have shape {tuple(logits.shape)}, but there are {len(task.labels)} labels"
        which = "the last dimension" if axis == -1 else f"dimension {axis}"
        hint = f"{which} must be {len(task.labels)}, for {in_short(task.labels)}"
        raise AlchemyError(text, section="model", hint=hint)


def _length(tensor: Tensor, axis: int) -> int:
    return tensor.shape[axis] if -tensor.dim() <= axis < tensor.dim() else -1
