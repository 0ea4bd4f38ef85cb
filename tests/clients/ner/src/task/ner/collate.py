"""Samples of different lengths as one batch of tensors."""

from typing import Any, Dict, List

import numpy as np
import torch

from .. import CollateFn


@CollateFn.register("Pad")
class PadCollateFn(CollateFn):
    def __init__(self, padding: int = 0, **kwargs) -> None:
        super().__init__()
        self.padding = padding

    def __call__(self, batch: List[Dict[str, Any]]) -> Dict[str, Any]:
        ret: Dict[str, Any] = {}
        for key in batch[0]:
            column = [sample[key] for sample in batch]
            if isinstance(column[0], np.ndarray):
                arrays = [torch.from_numpy(array) for array in column]
                ret[key] = torch.nn.utils.rnn.pad_sequence(arrays, batch_first=True, padding_value=self.padding)
            else:
                ret[key] = column
        return ret
