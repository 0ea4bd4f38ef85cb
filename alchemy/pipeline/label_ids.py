"""Names of labels become numbers, the way a loss takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before, where_in
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.processors.labels import hot

__all__ = ["LabelIds"]


@DataPipeline.register()
class LabelIds(LstDataPipeline):
    """The name in `field`, or each of a list of names, as its place in `labels`, in the field `to`.

    With `hot` a list of names becomes a row of zeros and ones, one for each label. Samples without the field pass: they
    can be predicted, and not scored.
    """

    maps = True
    where = where_before

    def __init__(
        self, datapipe: Any, *, labels: list[str], field: str = "label", to: str = "label_id", hot: bool = False
    ) -> None:
        super().__init__(datapipe)
        self.field, self.to, self.hot, self.labels = field, to, hot, labels
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise AlchemyError(
                f"LabelIds: the label {twice[0]!r} stands twice in labels", hint="its place is its number"
            )
        self.places = {label: place for place, label in enumerate(labels)}

    def __getitem__(self, index: int) -> Any:
        sample = self.datapipe[index]
        if self.field not in sample:
            return sample
        names = field_of(sample, self.field, self)
        try:
            return {**sample, self.to: self._numbers(names)}
        except (KeyError, TypeError) as error:
            wrong = error.args[0] if isinstance(error, KeyError) else names
            raise AlchemyError(
                f"{title(self)}: the label {wrong!r} of sample {index} is not among the labels of the training",
                where=where_in(self.datapipe, index),
                hint=did_you_mean(str(wrong), self.labels) or f"they are {', '.join(self.labels[:12])}",
            ) from error

    def __len__(self) -> int:
        return len(self.datapipe)

    def _numbers(self, names: Any) -> Any:
        if not isinstance(names, list | tuple | np.ndarray):
            return self.places[names]
        places = [self.places[name] for name in names]
        return np.array(hot(places, size=len(self.labels)), np.float32) if self.hot else np.array(places, np.int64)
