"""Every command that takes a record accepts an id prefix, `last`, `last~1` and `best(METRIC)`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.cli.record_names import find_config, find_record
from alchemy.errors import AlchemyError
from tests.analysis.fake_runs import write_run


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three runs, the second of which is the best, and a test."""
    monkeypatch.chdir(tmp_path)
    root = Path("records")
    found = [
        root / write_run(root, number, {"dev/f1": f1}, tag=f"t{number}") for number, f1 in enumerate([0.1, 0.9, 0.5])
    ]
    write_run(root, 9, {"test/f1": 0.3}, kind="test", parent=found[0].name)
    return found


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("last", 2), ("last~0", 2), ("last~2", 0), ("latest~1", 1), ("best(dev/f1)", 1), ("best( dev/f1 )", 1),
        ("best(dev/f1, tag:t0 or tag:t2)", 2), ("best(test/f1)", 0), ("2026-03-01_13", 1),
        ("2026-03-01_14-00-00.000000", 2), ("records/2026-03-01_12-00-00.000000", 0),
    ],
)  # fmt: skip
def test_a_name_stands_for_a_record(records: list[Path], name: str, place: int) -> None:
    assert find_record(name) == records[place]
    assert find_config(name) == str(records[place] / "cfg.toml")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2026-03-01", "'2026-03-01' matches 4 records"),
        ("none", "record not found: 'none'"),
        ("last~9", "found only 3 training runs"),
        ("best(dev/f2)", "no record has a metric 'dev/f2'; did you mean 'dev/f1'"),
        ("best(dev/f1, tag:none)", "no record that matches 'tag:none' has a value of dev/f1"),
        ("best(dev/f1, lr<)", "expected a value after '<'"),
        ("records/none", "record not found: 'records/none'"),
        ("records", "records is not a record"),
        ("", "name is empty"),
    ],
)
def test_a_name_that_means_nothing(records: list[Path], name: str, message: str) -> None:
    with pytest.raises(AlchemyError, match=message.replace("(", r"\(").replace("<", "[<]")):
        find_record(name)


def test_paths_and_latest_do_not_open_the_index(records: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    (records[1] / "ledger.jsonl").touch()
    monkeypatch.setattr("alchemy.index.record_index.RecordIndex.open", lambda: pytest.fail("opened"))
    assert find_record(str(records[0])) == records[0]
    assert find_record("latest") == records[1]  # the latest training run, as before
    with pytest.raises(AlchemyError, match="record not found"):
        find_record("records/none")
    assert find_config("train.toml#tiny") == "train.toml#tiny"
    assert not Path(".alchemy").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["resume", "{}"], ["test", "{}"], ["predict", "{}", "--text", "x"], ["generate", "{}", "--input", "a"],
        ["score", "{}", "--source", "a", "--target", "b"], ["export", "{}", "--format", "ctranslate2"],
        ["checkpoint", "ls", "{}"], ["replay", "{}", "--update", "1"], ["stop", "{}"], ["verify", "ledger", "{}"],
        ["trust", "{}"], ["config", "show", "{}"], ["config", "diff", "{}", "{}"], ["data", "peek", "{}"],
        ["mail", "show", "{}"], ["show", "{}"], ["diff", "{}", "{}"],
    ],
    ids=lambda words: " ".join(words[:2]),
)  # fmt: skip
@pytest.mark.parametrize("name", ["best(dev/f1)", "2026-03-01_13", "last~1"])
def test_every_command_finds_it(records: list[Path], capsys, words: list[str], name: str) -> None:
    Path("a").write_text("x\n")
    shutil.copy("a", "b")
    main([word.format(name) for word in words])
    out, err = capsys.readouterr()
    assert "record not found" not in out + err
    assert "config file not found" not in out + err
    missing = main([word.format("nope") for word in words])
    assert missing == 2
    assert "not found: 'nope'" in capsys.readouterr().err
