"""Custom scores in addition to the built-in accuracy."""

from collections import Counter
from typing import Any

from alchemy.pipeline import EvalPipeline


@EvalPipeline.register()
class WorstClass(EvalPipeline):
    """The accuracy of the worst class, computed from the rows that Accuracy passes on."""

    produces = ("worst_class",)  # lets `alchemy check` find a misspelled monitor

    def __init__(self) -> None:
        super().__init__()

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        total = Counter(row["label"] for row in kwargs["preds"])
        right = Counter(row["label"] for row in kwargs["preds"] if row["pred"] == row["label"])
        return {**kwargs, "worst_class": min(right[label] / count for label, count in total.items())}
