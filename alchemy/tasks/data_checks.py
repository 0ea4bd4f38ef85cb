"""What is wrong with the data of a task on texts, told with file and line before the first step."""

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
    from alchemy.tasks.text_task import TextTask


class Samples(Protocol):
    """Samples that are read by their number."""

    def __getitem__(self, index: int, /) -> Any: ...
    def __len__(self) -> int: ...


def samples_of(source: Samples, most: int | None = None) -> Iterator[tuple[int, Any]]:
    """The samples with their numbers, read beside the training: nothing that they draw changes it."""
    with preserve_rng_state():
        for index in range(len(source))[:most]:
            set_current_sample(0, index)
            yield index, source[index]


def checked_samples(task: TextTask, source: Samples, split: str, most: int | None = None) -> Iterator[tuple[int, Any]]:
    """The samples with their numbers; an error where the task cannot read one, or has nothing to learn from it."""
    for index, sample in samples_of(source, most):
        try:
            task.check(sample)
            if split == "train" and task.needs and task.target not in sample:
                hint = f"name its column in the processor: label = {task.target!r}"
                raise AlchemyError(f"there is no {task.target!r} to learn, only {in_short(sample)}", hint=hint)
        except AlchemyError as error:
            section, hint = f"task.datasets.{split}", error.problem.hint
            raise AlchemyError(
                error.problem.message, where=where_in(source, index), section=section, hint=hint
            ) from error
        yield index, sample


def check_indexed(task: TextTask, source: object, split: str) -> None:
    if isinstance(source, IterableDataset):
        hint = "put alchemy.pipeline.lst.ItrToLst at the end of its pipes"
        text = f"{type(task).__name__} reads samples by their number, and {title(source)} is a stream"
        raise AlchemyError(text, section=f"task.datasets.{split}", hint=hint)


def check_labels(task: TextTask, source: Samples, split: str) -> list[int]:
    """Goes over all samples of a split: a label that the training never saw is an error; returns their characters."""
    known, sizes = set(task.labels), []
    for index, sample in checked_samples(task, source, split):
        sizes.append(sum(map(len, task.texts(sample))))
        strange = [name for name in task.names(sample) if name not in known]
        if strange:
            raise AlchemyError(
                f"the label {shorten(strange[0])} is not among the labels of the training",
                where=where_in(source, index),
                section=f"task.datasets.{split}",
                hint=did_you_mean(str(strange[0])[:100], task.labels) or f"they are {in_short(task.labels)}",
            )
    return sizes


def check_lengths(encoded: Samples, options: Mapping[str, Any]) -> None:
    """Encodes every sample once, which refuses the first that is too long."""
    if options.keys() & {"max_tokens", "max_sentences"}:
        lengths_of(encoded, options["length_of"])  # the loader asks for them too, and they are kept
        return
    with Bar("lengths of texts", len(encoded), Console(stderr=True)) as bar:
        for _ in samples_of(encoded):
            bar.step()


def encode_long(task: TextTask, source: Samples, encoded: Samples) -> None:
    """Encodes the samples that may be longer than the default limit, so that it is known how many are cut.

    A tokenizer makes no more tokens of a text than it has bytes, so most samples need not be encoded.
    """
    room = encoded.places.room if isinstance(encoded, Encode | EncodeWords) else 0
    for index, sample in samples_of(source):
        if sum(len(text.encode("utf-8", "surrogatepass")) for text in task.texts(sample)) > room:
            encoded[index]


def check_fields(task: TextTask, model: AlchemyModel | None, encoded: Samples) -> None:
    """An error where a model of ours reads what the task does not give it."""
    if not isinstance(model, TextModel):
        return
    for _, sample in samples_of(encoded, 1):
        absent = [name for name in model.reads if name not in sample]
        if absent:
            ours, theirs = type(task).__name__, type(model).__name__
            text = f"{theirs} reads {absent[0]!r}, and the samples of {ours} have {in_short(sample)}"
            raise AlchemyError(text, section="model", hint=f"{theirs} goes with {model.goes_with}, of the same `kind`")


def check_logits(task: TextTask, outputs: object) -> None:
    """An error where the logits of a model are not there, or not of the labels of a task."""
    name, model = type(task).__name__, type(task.run.model.module).__name__
    if not isinstance(outputs, Mapping):
        return
    if "logits" not in outputs:
        text = f"{name} reads 'logits', and {model} returned {in_short(outputs) or 'nothing'}"
        raise AlchemyError(text, section="model", hint="return a dict with 'logits'")
    logits = outputs["logits"]
    if task.labels and isinstance(logits, Tensor) and logits.shape[-1:] != (len(task.labels),):
        text = f"the logits of {model} have the shape {tuple(logits.shape)}, and there are {len(task.labels)} labels"
        hint = f"let the last dimension be {len(task.labels)}, for {in_short(task.labels)}"
        raise AlchemyError(text, section="model", hint=hint)
