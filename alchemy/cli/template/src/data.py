"""A row of the csv file becomes a sample."""

from collections.abc import Iterator
from typing import Any

from alchemy.pipeline import DataPipeline, ItrDataPipeline


@DataPipeline.register()
class ReadPoint(ItrDataPipeline):
    """`{"x": "0.1", "y": "-0.2", "label": "red"}` -> `{"point": [0.1, -0.2], "label": 0}`; new points have no label."""

    def __init__(self, datapipe: Any, *, labels: list[str]) -> None:
        super().__init__(datapipe)
        self.index = {label: number for number, label in enumerate(labels)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.datapipe:
            label = {"label": self.index[row["label"]]} if "label" in row else {}
            yield {"point": [float(row["x"]), float(row["y"])], **label}
