"""A record that is removed during training: one warning, and no lost metrics."""

from __future__ import annotations

from pathlib import Path

from alchemy.records.status import read_info
from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of


def test_a_folder_that_is_removed_is_made_again(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, faults=["removed"]) == 0, text_of(tmp_path)
    record, text = record_of(tmp_path), (tmp_path / "log.txt").read_text()
    assert text.count("the record folder was deleted during the run and recreated") == 1
    assert "Traceback" not in text
    info = read_info(record)
    assert info["status"] == "finished"
    assert "checkpoints and other files written before" in info["reason"]
    for name in ("cfg.toml", "env.json"):
        assert (record / name).read_bytes() == (baseline / name).read_bytes() or name == "cfg.toml"
    assert "record: " in (record / "run.log").read_text().splitlines()[0]
    # all rows since the first update, and the complete last state
    assert [text for text in differences(baseline, record) if not text.startswith("state best")] == []


def test_it_can_be_gone_on_with(lab: Lab, tmp_path: Path) -> None:
    baseline, _ = lab.baseline()
    assert lab.start(tmp_path, [["forward", 11, 15]], faults=["removed"]) == 143, text_of(tmp_path)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert [text for text in differences(baseline, record_of(tmp_path)) if not text.startswith("state best")] == []


def test_it_is_noticed_without_a_save(lab: Lab, tmp_path: Path) -> None:
    assert lab.start(tmp_path, faults=["removed"], checkpoint={"enabled": False}) == 0, text_of(tmp_path)
    assert read_info(record_of(tmp_path))["status"] == "finished"
    assert len((record_of(tmp_path) / "ledger.jsonl").read_text().splitlines()) > 15
