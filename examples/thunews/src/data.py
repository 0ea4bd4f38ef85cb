"""A data pipe for the examples of a processor, and the labels of a task."""

import functools
import math
from pathlib import Path
from typing import Any, Literal

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.labels import read_labels
from src.processors import PROCESSORS, DataProcessor, InputExample


@DataPipeline.register()
class Examples(LstDataPipeline):
    """The examples of one split: `{"text": "..", "label": "体育"}`, and `pair` if the task has two texts.

    They are read on first use. Examples of the split `test` never have a label.
    """

    begins = True

    def __init__(
        self, *, task: str, split: Literal["train", "dev", "test"], data_dir: str, labels: list[str] = []
    ) -> None:
        super().__init__()
        self.task, self.split, self.data_dir, self.labels = task, split, data_dir, labels

    @functools.cached_property
    def samples(self) -> list[dict[str, Any]]:
        processor = PROCESSORS[self.task]()
        examples = getattr(processor, f"get_{self.split}_examples")(self.data_dir)
        if not examples:
            raise AlchemyError(f"{type(processor).__name__} found no {self.split} examples in {self.data_dir}")
        return [self._sample(processor, example) for example in examples]

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def _sample(self, processor: DataProcessor, example: InputExample) -> dict[str, Any]:
        texts = {"text": example.text_a} | ({"pair": example.text_b} if processor.pairs else {})
        for name, text in texts.items():
            if not isinstance(text, str) or not text.strip():
                raise AlchemyError(f"the {name} is {text!r}, expected non-empty text", where=place(example))
        if example.text_b is not None and not processor.pairs:
            hint = f"set pairs = True in {type(processor).__name__}"
            raise AlchemyError("the example has a second text, which would be ignored", where=place(example), hint=hint)
        return texts if self.split == "test" else texts | {"label": self._label(processor, example)}

    def _label(self, processor: DataProcessor, example: InputExample) -> str | float:
        if processor.output_mode == "regression":
            return number(example)
        if example.label not in self.labels:
            near = did_you_mean(str(example.label), self.labels)
            hint = near or f"expected one of {', '.join(self.labels[:12])}"
            raise AlchemyError(f"unknown label {example.label!r}", where=place(example), hint=hint)
        return example.label


def place(example: InputExample) -> str:
    """Return the file and line of an example if its processor provides them, else its guid."""
    return example.where or example.guid


def number(example: InputExample) -> float:
    """Return the target of a regression."""
    try:
        value = float(example.label)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise AlchemyError(f"the label is {example.label!r}, expected a finite number", where=place(example))
    return value


def labels_of(task: str, data_dir: str) -> list[str]:
    """Return the labels of a task in order: from the processor, labels.txt, or the training data."""
    processor = PROCESSORS[task]()
    if processor.output_mode == "regression":
        return []
    told = processor.get_labels()
    listed = Path(data_dir).expanduser() / "labels.txt"
    if told is None and not listed.is_file():
        told = sorted({str(example.label) for example in processor.get_train_examples(data_dir)})
    return list(read_labels(str(listed) if told is None else told).names)
