"""Optional packages: alchemy works without them, and reports what to install when one is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hidden import EVERYTHING, HIDE, python

RUN = """
from alchemy.runner import run
from tests.toy import config
cfg = config({log_dir!r}, sched__epochs=1)
cfg["plugins"] += {plugins!r}
(result,) = run([cfg], device=[-1])
print(result.status, result)
"""


def test_a_run_needs_none_of_them(tmp_path: Path) -> None:
    out = python(HIDE.format(hidden=EVERYTHING) + RUN.format(log_dir=str(tmp_path), plugins=[]))
    assert out.splitlines()[-1].startswith("finished")


@pytest.mark.parametrize(
    ("package", "pipe", "name"),
    [("pyarrow", "ParquetOpener", "rows.parquet"), ("zstandard", "JsonlOpener", "rows.jsonl.zst")],
)
def test_a_missing_reader_is_named_when_a_file_needs_it(tmp_path: Path, package: str, pipe: str, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    code = f"""
from alchemy.errors import AlchemyError
from alchemy.pipeline.openers import {pipe}
try:
    list({pipe}([{str(tmp_path / name)!r}]))
except AlchemyError as error:
    print("AlchemyError", error)
"""
    out = python(HIDE.format(hidden=[package]) + code)
    assert out.startswith("AlchemyError") and package in out and "install" in out
