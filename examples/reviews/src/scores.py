"""A score of our own, beside the built-in accuracy."""

from typing import Any

from alchemy.pipeline import EvalPipeline


@EvalPipeline.register()
class RecallByClass(EvalPipeline):
    """How many of each class were recognized, as `recall_<name>`; reads the rows that Accuracy hands on."""

    def __init__(self, *, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        for label, name in enumerate(self.names):
            right = [row["pred"] == label for row in kwargs["preds"] if row["label"] == label]
            if right:  # a few reviews, as in a trial run, may all be of one class
                kwargs[f"recall_{name}"] = sum(right) / len(right)
        return kwargs
