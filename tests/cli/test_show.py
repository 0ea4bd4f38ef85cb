"""`alchemy show` and `alchemy search`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.records.readme import add_note, set_purpose, set_tags
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run
from tests.cli.run_command import run

TRACE = """Traceback (most recent call last):
  File "src/model.py", line 3, in forward
    return 焦点(x)
ValueError: 形状不一致
"""


def fail(record: Path) -> None:
    change_info(record, status="failed", reason="ValueError: 形状不一致")
    (record / "mail.json").write_text(json.dumps({"format": 1, "traceback": TRACE}), "utf-8")


def test_one_screen_about_a_run(records: Path, capsys) -> None:
    name = write_run(records, 1, {"dev/f1": 0.5, "time/step": 1.0}, seed=7)
    test = write_run(records, 2, {"test/f1": 0.4}, kind="test", parent=name)
    record = records / name
    set_purpose(record, "Does it help?")
    set_tags(record, ["paper"])
    add_note(record, "yes")
    git = {"commit": "3fa2" * 10, "branch": "main", "dirty": True}
    change_info(record, git=git, variant="tiny", delta={"model.hidden": 4}, cmd=["/x/bin/alchemy", "run", "a b.toml"])
    (record / "state" / "last").mkdir(parents=True)
    shown = run(capsys, "show", "last~0")
    for text in (
        "demo: finished", str(record), "Does it help?", "tags: paper",
        "2026-03-01 13:00:00, 5 min, 2 updates, on elsewhere", "alchemy run 'a b.toml'",
        "3fa23fa23fa2 (main), with uncommitted changes", "seed      7", "tiny: model.hidden = 4",
        "dev/f1 0.5 at update 2",
        f"test {test} (finished)", "test/f1", ": yes", "alchemy test 2026-03-01_13-00-00",
        "alchemy plot 2026-03-01_13-00-00 --metric dev/f1", "cfg.toml",
    ):  # fmt: skip
        assert text in shown
    assert "time/step" not in shown
    assert f"parent    train {name} (finished)" in run(capsys, "show", test)
    data = json.loads(run(capsys, "show", name, "--json"))
    assert (data["seed"], data["children"][0]["id"], data["metrics"]["test/f1"]["last"]) == (7, test, 0.4)


def test_a_failure_shows_its_traceback_and_how_to_resume(records: Path, capsys) -> None:
    record = records / write_run(records, 1, {"dev/f1": 0.5})
    fail(record)
    (record / "state" / "u4").mkdir(parents=True)
    shown = run(capsys, "show", "last")
    assert "return 焦点(x)\n  ValueError: 形状不一致" in shown
    assert "alchemy resume 2026-03-01_13-00-00" in shown and "alchemy test" not in shown


def test_a_failed_run_without_checkpoints_can_only_be_replayed(records: Path, capsys) -> None:
    record = records / write_run(records, 1, {})
    fail(record)
    (record / "checkpt").mkdir()
    change_info(record, reason="ValueError: 形状不一致; in epoch 1/2, update 7, step 6, samples 3, 5")
    assert "alchemy replay" not in run(capsys, "show", "last")  # nothing says which samples it had seen
    (record / "ledger.jsonl").write_text("")
    data = json.loads(run(capsys, "show", "last", "--json"))
    assert [text for text in data["next"] if "re" in text and "report" not in text] == [
        "alchemy replay 2026-03-01_13-00-00 --update 7"
    ]


@pytest.mark.parametrize("words", [["show", "best"], ["diff", "best", "last"], ["tag", "best()", "+x"]])
def test_best_needs_a_metric(records: Path, capsys, words: list[str]) -> None:
    write_run(records, 1, {"dev/f1": 0.5})
    assert "record not found: 'best" in (shown := run(capsys, *words, code=2))
    assert "write 'best(dev/f1)'" in shown


def test_records_that_are_damaged_or_old_are_shown(records: Path, capsys) -> None:
    damaged = records / write_run(records, 1, {})
    (damaged / "record.json").write_text("{")
    old = records / "old"
    (old / "checkpt").mkdir(parents=True)
    (old / "cfg.toml").write_text('tag = "x"\n')
    assert "damaged: " in run(capsys, "show", damaged.name)
    assert "unknown" in run(capsys, "show", "old")


def test_a_record_outside_the_project_is_shown(records: Path, tmp_path_factory, capsys) -> None:
    outside = tmp_path_factory.mktemp("outside")
    name = write_run(outside, 1, {"dev/f1": 0.5})
    assert str(outside / name) in run(capsys, "show", str(outside / name))
    assert name not in run(capsys, "ls")


def test_words_are_found_wherever_they_are(records: Path, capsys) -> None:
    record = records / write_run(records, 1, {}, {"model": {"type": "src.FocalNet"}})
    fail(record)
    set_purpose(record, "Hilft ein anderes Optimierungsverfahren? 学习率预热")
    add_note(record, "explodes after warm-up")
    text = (record / "README.md").read_text("utf-8")
    (record / "README.md").write_text(f"{text}\n## Results\n\nquite disappointing\n", "utf-8")
    for words, place in {
        ("学习",): "purpose: ", ("预热",): "purpose: ", ("WARM-UP",): "notes: ", ("focalnet",): "config: model.type = ",
        ("disappointing",): "README: ", ("形状",): "reason: ", ("forward",): "traceback: ",
        ("explodes", "学习"): "notes: ",
    }.items():  # fmt: skip
        shown = run(capsys, "search", *words)
        assert shown.startswith("2026-03-01_13-00-00  failed  demo\n"), words
        assert f"    {place}" in shown
    assert run(capsys, "search", "习预") == "no training run contains all of these words\n"
    assert "'fo' is only found as a whole word, since it is shorter than 3 letters" in run(capsys, "search", "Fo")
    (found,) = json.loads(run(capsys, "search", "学习率", "--json"))
    assert found["matches"] == [{"where": "purpose", "text": "Hilft ein anderes Optimierungsverfahren? 学习率预热"}]


def test_tests_are_searched_on_request(records: Path, capsys) -> None:
    name = write_run(records, 1, {}, tag="spiral")
    write_run(records, 2, {}, tag="spiral", kind="test", parent=name)
    assert "1 tests and predictions match too" in run(capsys, "search", "spiral")
    assert len(run(capsys, "search", "spiral", "--all").splitlines()) == 4


@pytest.mark.parametrize("text", ["", "!?", '"', "\\"])
def test_nothing_to_search_for(records: Path, capsys, text: str) -> None:
    assert "there is no word to search for" in run(capsys, "search", text, code=2)


def test_hostile_text_is_escaped(records: Path, capsys) -> None:
    record = records / write_run(records, 1, {})
    (record / "README.md").write_text("# \x1b]0;x\x07\n\nfocal \x1b[2J loss\n", "utf-8")
    change_info(record, cmd=["\x1b[2J"], host="\x9b", variant="\x07", versions={"a": "\x1b"}, delta={"\x1b": "\x07"})
    for words in (("show", "last"), ("search", "focal"), ("show", "last", "--json"), ("search", "focal", "--json")):
        assert not set(run(capsys, *words)) & set("\x1b\x07\x9b")
