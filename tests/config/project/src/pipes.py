"""Pipes of a small project, of both generations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alchemy.pipeline import (
    DataPipeline,
    EndEpochPipeline,
    EvalPipeline,
    ItrDataPipeline,
    LstDataPipeline,
    OutputPipeline,
    SchedPipeline,
)


@DataPipeline.register("JsonLOpener")
class JsonLOpener(ItrDataPipeline):
    def __init__(self, datapipe: Any, **kwargs: Any) -> None:
        super().__init__(datapipe)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@DataPipeline.register()
class Lines(ItrDataPipeline):
    def __init__(self, *, datapipe: list[Path], encoding: str = "utf-8", limit: int = 0) -> None:
        super().__init__()


@DataPipeline.register()
class Lower(ItrDataPipeline):
    def __init__(self, datapipe: Any, *, keep: bool = False) -> None:
        super().__init__(datapipe)


@DataPipeline.register()
class Table(LstDataPipeline):
    def __init__(self, datapipe: Any) -> None:
        super().__init__(datapipe)


@OutputPipeline.register()
class Decode(OutputPipeline):
    def __init__(self, labels: list[str], **kwargs: Any) -> None:
        super().__init__()


@EvalPipeline.register()
class Score(EvalPipeline):
    def __init__(self, average: str = "micro", **kwargs: Any) -> None:
        super().__init__()
        self.history = kwargs.get("store_history", True)


@SchedPipeline.register("EvalEpochEEPipeline")
class EvalEpochEEPipeline(EndEpochPipeline):
    def __init__(self, period: int, split: str = "dev", **kwargs: Any) -> None:
        super().__init__()


@dataclass
class Options:
    """Not a part."""

    depth: int
    width: int = 3


@DataPipeline.register()
class GivesText(ItrDataPipeline):
    gives = {"text": "str"}


@DataPipeline.register()
class TakesIds(ItrDataPipeline):
    takes = {"ids": "int64"}
