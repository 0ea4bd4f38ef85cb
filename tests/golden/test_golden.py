"""Golden traces: no change of loop, data, models or optimizers may alter a bit, unless its commit explains why.

`python -m tests.golden.record NAME ..` is the only way to record traces again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.trace import CONFIGS, TOGETHER, WEIGHTS, file_of, machine, trace

PARAMS = [pytest.param(name, marks=pytest.mark.dist if name in TOGETHER else ()) for name in CONFIGS]


@pytest.mark.parametrize("config", PARAMS)
def test_a_training_leaves_its_golden_trace(config: str, tmp_path: Path) -> None:
    kept, found = json.loads(file_of(config).read_text("utf-8")), trace(config, tmp_path)
    # another torch or CPU rounds differently: compare losses within a tolerance instead of bits
    exact = all(kept[key] == value for key, value in machine().items())
    tolerance = 1e-3 if config.startswith("fp16") else 1e-6  # half precision has three digits
    for name, losses in kept["losses"].items():
        assert found["losses"][name] == (losses if exact else pytest.approx(losses, rel=tolerance)), name
    for kind in WEIGHTS:
        hashes, expected = found.get(kind, {}), kept.get(kind, {})
        assert hashes == expected if exact else hashes.keys() == expected.keys(), kind
