"""The targets of all ranks count: training fails only if no rank has any."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.config.toml_writer import dumps
from tests.dist.start import torchrun
from tests.labeled import config

pytestmark = pytest.mark.dist


@pytest.mark.parametrize(
    ("labels", "code", "said"), [("ignored", 1, "nothing was learned"), ("some ignored", 0, "finished")]
)
def test_the_counts_of_all_ranks_are_summed(labels: str, code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(dumps(config(labels)))
    assert said in torchrun(2, "alchemy", "run", tmp_path / "c.toml", "--device", -1, code=code)
