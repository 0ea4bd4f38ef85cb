"""Tasks of a small project."""

from __future__ import annotations

from typing import Any

from alchemy.task import AlchemyTask

from .helpers import length_of


@AlchemyTask.register("Ner")
class NerTask(AlchemyTask):
    def __init__(self) -> None:
        super().__init__()
        self.labels = self.cfg["labels"]
        self.longest = length_of(self)

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        kwargs.pop("lowercase", None)
        super().load_dataset(split, **kwargs)


@AlchemyTask.register()
class Direct(AlchemyTask):
    def __init__(self) -> None:
        super().__init__()
        self._datasets["train"] = ([1, 2, 3], {})
