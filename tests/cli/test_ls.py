"""`alchemy ls`: what it lists, and how."""

from __future__ import annotations

import csv
import datetime
import io
import json
import os
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.records.readme import set_tags
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run


def ls(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[str], str]:
    assert main(["ls", *words]) == code
    out, err = capsys.readouterr()
    return out.splitlines(), err


def test_runs_that_differ_in_their_seed_are_one_line(records: Path, capsys) -> None:
    for number, (seed, status) in enumerate([(1, "finished"), (2, "failed"), (3, "finished")]):
        write_run(records, number, {"dev/f1": 0.7 + seed / 10}, seed=seed, status=status)
    lines, _ = ls(capsys)
    assert lines[0].split() == ["id", "status", "tag", "runs", "dev/f1", "duration", "created"]
    assert "failed, finished ×2" in lines[1]
    assert "0.9 ± 0.1 (3)" in lines[1]
    assert len(ls(capsys, "--each")[0]) == 4


def test_runs_of_different_code_are_separate_lines(records: Path, capsys) -> None:
    for number in range(4):
        name = write_run(records, number, {"dev/f1": 0.7}, seed=number)
        change_info(records / name, code_hash="ab"[number // 2] * 64)
    lines, _ = ls(capsys)
    assert [line.split()[0] for line in lines] == ["id", "2026-03-01_15-00-00", "2026-03-01_13-00-00"]
    assert "code" in lines[0].split() and "b" * 10 in lines[1] and "a" * 10 in lines[2]
    assert "code" not in ls(capsys, "code:a")[0][0].split()


def test_a_folded_line_is_named_after_the_latest_run_and_has_all_tags(records: Path, capsys) -> None:
    for number, tags in enumerate([["z", "a"], [], ["b", "a"]]):
        set_tags(records / write_run(records, number, {"dev/f1": 0.9 - number / 10}, seed=number), add=tags)
    for order in (["dev/f1"], ["seed"], ["created"], ["created", "--reverse"]):
        lines, _ = ls(capsys, "--columns", "id,tags,created", "--sort", *order)
        assert lines[1].split()[:5] == ["2026-03-01_14-00-00", "a,", "b,", "z", "2026-03-01"]


def test_a_rerun_does_not_represent_a_folded_line(records: Path, capsys) -> None:
    first = write_run(records, 0, {"dev/f1": 0.9})
    write_run(records, 1, {"test/f1": 0.8}, kind="test", parent=first)
    change_info(records / write_run(records, 2, {"dev/f1": 0.9}, parent=first), purpose="rerun of it")
    write_run(records, 3, {"dev/f1": 0.1}, status="failed")
    lines, _ = ls(capsys, "--columns", "id,purpose,runs,dev/f1,test/f1,parent")
    assert lines[1].split() == ["2026-03-01_12-00-00", "3", "0.9", "0.8", first]


def test_ids_can_be_used_as_they_are(records: Path, capsys) -> None:
    name = write_run(records, 1, {})
    os.rename(records / name, records / "2026-01-01_10-00-00.123456")
    for other in ("2026-01-01_10-00-00.123999", "2026-01-01_10-00-01.000000"):
        os.rename(records / write_run(records, 1, {}), records / other)
    lines, _ = ls(capsys, "--each", "--sort", "id")
    shown = [line.split()[0] for line in lines[1:]]
    assert shown == ["2026-01-01_10-00-00.1234", "2026-01-01_10-00-00.1239", "2026-01-01_10-00-01"]
    for short, full in zip(shown, sorted(os.listdir(records)), strict=True):
        assert main(["open", short]) == 0
        assert capsys.readouterr().out.strip().endswith(full)


def test_a_repeated_id_is_shown_as_a_path(records: Path, capsys) -> None:
    for folder in ("a", "b"):
        write_run(records / folder, 1, {})
    lines, _ = ls(capsys, "--each", "--columns", "id")
    assert all(line.startswith(str(records)) for line in lines[1:])


def test_the_caret_points_into_the_filter_as_typed(records: Path, capsys) -> None:
    write_run(records, 1, {}, {"optim": {"lr": 0.1}})
    _, err = ls(capsys, "焦点", "or", "lr<x", code=2)
    assert err == "error: 'x' is not a number\n  焦点 or lr<x\n" + " " * 13 + "^\n"
    _, err = ls(capsys, "(status:failed", code=2)
    assert err == "error: expected ')'\n  (status:failed\n" + " " * 16 + "^\n"


def test_training_runs_are_listed_unless_the_filter_names_a_kind(records: Path, capsys) -> None:
    run = write_run(records, 1, {"dev/f1": 0.5})
    write_run(records, 2, {"test/f1": 0.4}, kind="test", parent=run)
    lines, _ = ls(capsys, "--columns", "id,kind,test/f1")
    assert [line.split()[1:] for line in lines] == [["kind", "test/f1"], ["train", "0.4"]]
    assert len(ls(capsys, "kind:test")[0]) == 2
    lines, _ = ls(capsys, "--all", "--columns", "kind,test/f1")
    assert [line.split() for line in lines[1:]] == [["test", "0.4"], ["train", "0.4"]]


def test_best_values_come_first(records: Path, capsys) -> None:
    for number, f1 in enumerate([0.1, 0.9, 0.5]):
        write_run(records, number, {"dev/f1": f1, "dev/loss": f1}, {"model": {"depth": number}})

    def column(*words: str) -> list[str]:
        return [line.strip() for line in ls(capsys, "--columns", "dev/f1", *words)[0][1:]]

    assert column("--sort", "dev/f1") == ["0.9", "0.5", "0.1"]
    assert column("--sort", "dev/loss") == ["0.1", "0.5", "0.9"]
    assert column("--sort", "depth", "--reverse") == ["0.5", "0.9", "0.1"]
    assert column() == ["0.5", "0.9", "0.1"]


def test_metrics_of_tests_are_sorted_too(records: Path, capsys) -> None:
    for number, f1 in enumerate([0.1, 0.9, 0.5]):
        run = write_run(records, number, {"dev/f1": 0.5}, {"model": {"depth": number}})
        write_run(records, 10 + number, {"test/f1": f1}, kind="test", parent=run)
    lines, _ = ls(capsys, "--columns", "test/f1", "--sort", "test/f1")
    assert [line.strip() for line in lines[1:]] == ["0.9", "0.5", "0.1"]


def test_columns_that_differ_are_shown_with_short_names(records: Path, capsys) -> None:
    for number, lr in enumerate([0.1, 0.2]):
        write_run(records, number, {}, {"optim": {"lr": lr, "eps": 1}})
    assert ls(capsys, "--columns", "+")[0] == ls(capsys)[0]
    lines, _ = ls(capsys, "--columns", "+eps")
    assert lines[0].split() == ["id", "status", "tag", "seed", "lr", "duration", "created", "eps"]
    data = json.loads("\n".join(ls(capsys, "--json")[0]))
    assert [line["columns"]["optim.lr"] for line in data] == [0.2, 0.1]
    assert data[0]["columns"]["created"] == "2026-03-01T13:00:00+00:00"


def test_keys_that_differ_without_a_column_are_named(records: Path, capsys) -> None:
    for number in (1, 2):
        keys = dict.fromkeys("abcdef", number)
        write_run(records, number, {}, {"model": keys, "sched": {"epochs": number}})
    lines, err = ls(capsys)
    assert lines[0].split()[4:8] == ["a", "b", "c", "d"]
    assert err == (
        "3 more config keys differ: model.e, model.f, sched.epochs; "
        "show them with --columns +model.e,model.f,sched.epochs\n"
    )
    lines, err = ls(capsys, "--columns", "+epochs,a,model.f,model.b,f")
    assert " ".join(lines[0].split()) == "id status tag seed a b c d duration created epochs f"
    assert err == "1 more config key differs: model.e; show it with --columns +model.e\n"
    assert ls(capsys, "--columns", "model.a")[1] == ""


def test_equal_metrics_have_a_deviation_of_zero(records: Path, capsys) -> None:
    for seed in (1, 2, 3):
        write_run(records, seed, {"dev/f1": 0.9067}, {"optim": {"lr": 0.1}}, seed=seed)
    lines, _ = ls(capsys, "--columns", "best,max(dev/f1),dev/f1,lr,updates")
    assert lines[1].split("  ") == [*["0.9067 ± 0 (3)"] * 3, "0.1", "2"]
    (line,) = json.loads("\n".join(ls(capsys, "--json", "--columns", "dev/f1")[0]))
    assert line["columns"]["dev/f1"] == {"mean": 0.9067, "std": 0.0, "n": 3}


def test_an_empty_list_gives_a_hint(records: Path, capsys) -> None:
    assert "no records below" in ls(capsys)[1]
    run = write_run(records, 1, {})
    assert "to look at a record: alchemy show 2026-03-01_13" in ls(capsys, "2026-03-01_13")[1]
    assert "alchemy show" not in ls(capsys, "2026-04")[1]
    write_run(records, 2, {}, kind="test", parent=run, tag="other")
    assert ls(capsys, "status:failed")[1] == "none of 2 records matches 'status:failed'\n"
    assert "add --all" in ls(capsys, "tag:other")[1]
    assert ls(capsys, "status:failed", "--json")[0] == ["[]"]


def test_csv_is_safe_for_spreadsheets(records: Path, capsys) -> None:
    for seed in (1, 2):
        write_run(records, seed, {"dev/f1": seed / 4}, seed=seed, tag="=cmd()")
    lines, _ = ls(capsys, "--csv", "--columns", "tag,dev/f1")
    (row,) = csv.DictReader(io.StringIO("\n".join(lines)))
    assert (row["tag"], row["dev/f1"], row["n"]) == ("'=cmd()", "0.375", "2")


@pytest.mark.parametrize("value", ["nan", "inf", 10**30, "1e999"])
def test_strange_numbers_are_shown_as_they_are(records: Path, capsys, value: object) -> None:
    write_run(records, 1, {}, {"model": {"x": value}})
    lines, _ = ls(capsys, "--columns", "model.x")
    assert lines[1].strip() == str(value)
    json.loads("\n".join(ls(capsys, "--json", "--columns", "model.x")[0]), parse_constant=pytest.fail)


def test_columns_of_the_settings(records: Path, capsys) -> None:
    """A metric that no run has logged yet is left out; a misspelled key is an error."""
    write_run(records, 1, {"dev/f1": 0.5})
    settings = Path(".alchemy/config.toml")
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('[ls]\ncolumns = ["id", "dev/later", "dev/f1"]\n')
    assert ls(capsys)[0][0].split() == ["id", "dev/f1"]
    assert ls(capsys, "--columns", "+tag")[0][0].split() == ["id", "dev/f1", "tag"]
    settings.write_text('[ls]\ncolums = ["id"]\n')
    assert "unknown key 'colums'; did you mean 'columns'?" in ls(capsys, code=2)[1]


def test_means_of_huge_numbers(records: Path, capsys) -> None:
    for seed in (1, 2):
        write_run(records, seed, {"dev/f1": seed * 8e307}, seed=seed)
    assert main(["compare", "seed=1", "seed=2", "--json"]) in (0, 2)
    capsys.readouterr()
    lines, _ = ls(capsys, "--columns", "runs,best,dev/f1,max(dev/f1)")
    assert lines[1].split() == ["2"]


def test_a_best_metric_that_was_never_logged(records: Path, capsys) -> None:
    """What one record names must not prevent the list of all."""
    for number in (1, 2):
        name = write_run(records, number, {}, {"last(x)": number})
        change_info(records / name, best={"metric": "dev/lost", "value": 0.5, "update": 1})
    assert [line.split()[0] for line in ls(capsys)[0]] == ["id", "2026-03-01_14-00-00", "2026-03-01_13-00-00"]


def test_the_duration_of_a_resumed_run_leaves_out_its_pauses(records: Path, capsys) -> None:
    change_info(records / write_run(records, 1, {}, minutes=600), gen=1, seconds=90.0)
    assert ls(capsys, "--columns", "duration")[0][1].split() == ["90", "s"]
    assert ls(capsys, "duration>100")[0] == []


@pytest.mark.parametrize(("end", "shown"), [("", "6"), ('{"event": "resume"}\n{"t": 9', "6"), ('{"t": "x"}\n', "0")])
def test_the_duration_of_a_killed_run_reaches_its_last_metrics(records: Path, capsys, end: str, shown: str) -> None:
    folder = records / write_run(records, 1, {})
    change_info(folder, status="killed", seconds=0.0)
    (folder / "metrics.jsonl").write_text(f'{{"update": 1, "t": 6.9, "values": {{"loss": 1}}}}\n{end}')
    assert ls(capsys, "--columns", "duration")[0][1].split() == [shown, "s"]


def test_the_duration_of_a_run_is_current_while_it_is_active(records: Path, capsys) -> None:
    started = datetime.datetime.now().astimezone() - datetime.timedelta(hours=3, minutes=1)
    name = write_run(records, 1, {})
    beat = datetime.datetime.now().astimezone().isoformat()
    change_info(records / name, status="running", started=started.isoformat(), heartbeat=beat, ended=None)
    assert ls(capsys, "--columns", "status,duration")[0][1].split() == ["running", "3", "h", "01", "min"]


def test_hostile_text_stays_on_its_line(records: Path, capsys) -> None:
    name = write_run(records, 1, {})
    change_info(records / name, purpose="a\nb\x1b[2J\x07\u202e", tag="\x9b31m" + "x" * 300)
    lines, err = ls(capsys, "--columns", "id,tag,purpose")
    assert len(lines) == 2
    assert not any(letter in "".join(lines) + err for letter in "\x1b\x07\x9b\u202e")


def test_wrong_options(records: Path, capsys) -> None:
    write_run(records, 1, {"dev/f1": 0.1})
    assert "did you mean 'dev/f1'" in ls(capsys, "--columns", "dev/f2", code=2)[1]
    assert "cannot sort by 'f1x'" in ls(capsys, "--sort", "f1x", code=2)[1]
    assert "expected a number of lines, or 0 to show all, got '-1'" in ls(capsys, "-n", "-1", code=2)[1]
    assert "--watch cannot be combined" in ls(capsys, "--watch", "--json", code=2)[1]


def test_watching_ends_with_ctrl_c(records: Path, capsys, monkeypatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    write_run(records, 1, {})
    monkeypatch.setattr("time.sleep", interrupt)
    lines, _ = ls(capsys, "--watch")
    assert "Ctrl-C ends" in lines[0]
    assert len(lines) == 3
