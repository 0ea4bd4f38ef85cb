"""Convert rows of the data files to samples."""

from collections.abc import Iterator, Sequence
from typing import Any

from alchemy.pipeline import DataPipeline, ItrDataPipeline


@DataPipeline.register()
class ReadPoint(ItrDataPipeline):
    """`{"x": "0.1", "y": "-0.2", "label": "red"}` -> `{"point": [0.1, -0.2], "label": 0}`; the label is optional.

    `mean` and `std` standardize the columns.
    """

    def __init__(
        self,
        datapipe: Any,
        *,
        labels: list[str],
        columns: Sequence[str] = ("x", "y"),
        label: str = "label",
        mean: list[float] | None = None,
        std: list[float] | None = None,
    ) -> None:
        super().__init__(datapipe)
        self.label, self.index = label, {name: number for number, name in enumerate(labels)}
        self.scales = list(zip(columns, mean or [0.0] * len(columns), std or [1.0] * len(columns), strict=True))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.datapipe:
            sample: dict[str, Any] = {"point": [(float(row[name]) - mean) / std for name, mean, std in self.scales]}
            if self.label in row:
                sample["label"] = self.index[str(row[self.label]).strip()]
            yield sample
