"""A custom metric, in addition to the built-in accuracy."""

from typing import Any

from alchemy.pipeline import EvalPipeline


@EvalPipeline.register()
class RecallByClass(EvalPipeline):
    """Compute the recall of each class, `recall_<name>`, from the rows that Accuracy passes on."""

    def __init__(self, *, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        for label, name in enumerate(self.names):
            right = [row["pred"] == label for row in kwargs["preds"] if row["label"] == label]
            if right:  # in a trial run, the few reviews may all have the same class
                kwargs[f"recall_{name}"] = sum(right) / len(right)
        return kwargs
