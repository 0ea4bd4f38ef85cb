"""A pipe that converts label names to the ids or multi-hot vectors that a loss expects."""

from __future__ import annotations

from typing import Any

import numpy as np

from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.pipeline import DataPipeline, LstDataPipeline, where_before, where_in
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.processors.labels import hot

__all__ = ["LabelIds"]

IGNORED = -100


@DataPipeline.register()
class LabelIds(LstDataPipeline):
    """Converts the label name in `field`, or a list of names, to indices into `labels`, stored in `to`.

    With `hot`, a list of names becomes a multi-hot vector with one entry per label. The name `ignored` is not a label:
    its id is -100, which losses ignore. Samples without the field pass through unchanged: they can be predicted but
    not scored.
    """

    maps = True
    where = where_before

    def __init__(
        self,
        datapipe: Any,
        *,
        labels: list[str],
        field: str = "label",
        to: str = "label_id",
        hot: bool = False,
        ignored: str = "",
    ) -> None:
        super().__init__(datapipe)
        self.field, self.to, self.hot, self.labels, self.ignored = field, to, hot, labels, ignored
        twice = [label for label in labels if labels.count(label) > 1]
        if twice:
            raise AlchemyError(
                f"LabelIds: duplicate label {twice[0]!r} in labels",
                hint="the id of a label is its position in the list",
            )
        self.places = {label: place for place, label in enumerate(labels)}
        if ignored:
            self.places[ignored] = IGNORED

    def __getitem__(self, index: int) -> Any:
        sample = self.datapipe[index]
        if self.field not in sample:
            return sample
        names = field_of(sample, self.field, self)
        try:
            return {**sample, self.to: self._to_ids(names)}
        except (KeyError, TypeError) as error:
            wrong = error.args[0] if isinstance(error, KeyError) else names
            raise AlchemyError(
                f"{title(self)}: sample {index} has the label {wrong!r}, which is not a label of the training data",
                where=where_in(self.datapipe, index),
                hint=did_you_mean(str(wrong), self.labels) or f"the labels are {', '.join(self.labels[:12])}",
            ) from error

    def __len__(self) -> int:
        return len(self.datapipe)

    def _to_ids(self, names: Any) -> Any:
        if not isinstance(names, list | tuple | np.ndarray):
            return self.places[names]
        places = [self.places[name] for name in names]
        return np.array(hot(places, size=len(self.labels)), np.float32) if self.hot else np.array(places, np.int64)
