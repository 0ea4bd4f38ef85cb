"""The gradient of an update depends on its samples, not on how they are split into micro-batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dist.parts import LOSSES, farthest, gradients_of

CUTS = [(4, 2), (2, 4), (1, 8)]  # batch_size, period


@pytest.mark.parametrize("loss", LOSSES)
def test_cuts_of_one_batch_agree(loss: str, tmp_path: Path) -> None:
    whole = gradients_of(loss, tmp_path / "whole")
    assert len(whole) == 4  # 8 + 5 texts, twice
    for batch_size, period in CUTS:
        cut = gradients_of(loss, tmp_path / f"{batch_size}", train={"batch_size": batch_size}, period=period)
        assert farthest(whole, cut) < 1e-12


def test_means_of_means_would_not_agree(tmp_path: Path) -> None:
    whole = gradients_of("tokens", tmp_path / "whole", means=True)
    cut = gradients_of("tokens", tmp_path / "cut", means=True, train={"batch_size": 2}, period=4)
    assert farthest(whole, cut) > 1e-3
