"""Non-finite values in a batch: their positions and samples."""

import numpy as np
import pytest
import torch

from alchemy.verify.nan_origin import find_nonfinite

NAN, INF = float("nan"), float("inf")
ONE_BAD = torch.tensor([[1.0, 2.0], [1.0, NAN], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("batch", "ids", "told"),
    [
        ({"x": torch.ones(3), "n": torch.tensor([1, 2, 3]), "text": ["a", "b", "c"]}, [5, 6, 7], []),
        ({"x": ONE_BAD}, [5, 6, 7], ["NaN in x of sample 6"]),
        ({"x": ONE_BAD}, None, ["NaN in x"]),
        ({"x": ONE_BAD}, [5, 6], ["NaN in x"]),  # its first dimension is not the batch
        ({"in": (torch.ones(3), ONE_BAD.double())}, [5, 6, 7], ["NaN in in.1 of sample 6"]),
        ({"mask": torch.tensor([-INF, 0.0, INF])}, [5, 6, 7], ["infinity in mask of samples 5, 7"]),
        (ONE_BAD, [5, 6, 7], ["NaN in the tensor of sample 6"]),
        ({"x": ONE_BAD.numpy(), "words": np.array(["a"])}, [5, 6, 7], ["NaN in x of sample 6"]),
        ({"x": ONE_BAD.to_sparse(), "scale": NAN, "none": None}, [5, 6, 7], ["NaN in x of sample 6", "NaN in scale"]),
        ({"x": torch.full((30,), NAN)}, list(range(30)), [f"NaN in x of samples {', '.join(map(str, range(20)))}, .."]),
        ({"x": torch.empty(0, 4)}, [], []),
    ],
)
def test_each_is_named(batch, ids, told):
    assert list(map(str, find_nonfinite(batch, ids))) == told
