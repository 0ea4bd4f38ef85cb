"""`alchemy predict` with inputs: text, files and lines; predictions in order, errors with their position."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.runner import run_task
from tests.tasks.texts import config
from tests.trained import trained

Asking = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {kind: str(trained(tmp_path_factory.mktemp(kind), kind)[0]) for kind in ("classes", "pairs", "tagging")}


@pytest.fixture
def ask(
    records: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Asking:
    """Predict with a record in an empty folder, and read the printed lines; `code` is the expected exit code."""
    monkeypatch.chdir(tmp_path)

    def answers(*words: str, kind: str = "classes", code: int = 0, stdin: bytes = b"") -> list[dict[str, Any]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        assert main(["predict", records[kind], "--device", "-1", *words]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return answers


def test_texts_are_answered_and_leave_nothing_behind(ask: Asking, tmp_path: Path, records: dict[str, str]) -> None:
    before = sorted(Path(records["classes"]).parent.iterdir())
    found = ask("--text", "a fine day", "--text", "sad rain")
    assert [row["text"] for row in found] == ["a fine day", "sad rain"]
    assert all(row["pred"] in ("good", "bad") and 0 < row["prob"] <= 1 for row in found)
    assert sorted(Path(records["classes"]).parent.iterdir()) == before
    assert list(tmp_path.iterdir()) == []


def test_pairs_are_answered(ask: Asking) -> None:
    (found,) = ask("--text", "a fine day", "--pair", "sun", kind="pairs")
    assert list(found) == ["text", "pair", "pred", "prob"]


def test_rows_of_a_table_keep_their_columns_and_their_order(ask: Asking, tmp_path: Path) -> None:
    texts = ["rain " * (number % 7 + 1) for number in range(50)]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "title"), *enumerate(texts)])
    assert ask("--file", "in.csv", "--column", "title", "--out", "out.csv", "--batch-size", "4") == []
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], row["title"]) for row in rows] == [(str(number), text) for number, text in enumerate(texts)]
    assert list(rows[0]) == ["id", "title", "pred", "prob"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.csv", 'label,text\nx,a fine day\ny,"sad, rain"\n'),
        ("in.tsv", "label\ttext\nx\ta fine day\ny\tsad, rain\n"),
        ("in.jsonl", '{"label": "x", "text": "a fine day"}\n{"label": "y", "text": "sad, rain"}\n'),
        ("in.txt", "a fine day\nsad, rain\n"),
    ],
)
def test_files_of_every_kind_are_read(name: str, text: str, ask: Asking, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found = ask("--file", name)
    assert [row["text"] for row in found] == ["a fine day", "sad, rain"]
    assert [row.get("label") for row in found] == ([None, None] if name == "in.txt" else ["x", "y"])
    assert [row["pred"] for row in found] == [row["pred"] for row in ask("--text", "a fine day", "--text", "sad, rain")]


def test_columns_of_pairs_and_other_encodings_can_be_named(ask: Asking, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("问,答\n早,晚\n", "gb18030")
    options = ("--column", "问", "--pair", "答", "--encoding", "gb18030")
    (found,) = ask("--file", "in.csv", *options, kind="pairs")
    assert list(found) == ["问", "答", "pred", "prob"]


def test_tokens_of_a_file_are_tagged(ask: Asking, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 7, "tokens": ["小", "明"]}))
    (found,) = ask("--file", "in.jsonl", kind="tagging")
    assert found["id"] == 7 and len(found["pred"]) == 2
    (other,) = ask("--text", "小明", kind="tagging")
    assert other["pred"] == found["pred"]


def test_the_column_of_the_training_is_the_default(
    ask: Asking, tmp_path: Path, records: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    column = ("--set", 'task.datasets.dev.pipes.0.text="title"')
    for name, text in {"in.csv": "title,text\nrain,x\n", "in.jsonl": '{"title": "rain"}\n'}.items():
        (tmp_path / name).write_text(text)
        (found,) = ask("--file", name, *column)
        assert found["pred"] == ask("--text", "rain")[0]["pred"] and found["title"] == "rain"
    (tmp_path / "old.csv").write_text("text\nrain\n")  # a file with only a column `text` is read as before
    assert len(ask("--file", "old.csv", *column)) == 1
    assert main(["predict", records["classes"], "--device", "-1", "--text", "rain"]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("model: ")]
    assert records["classes"] in told and "epoch" in told


def test_lines_are_answered_up_to_a_wrong_one(ask: Asking) -> None:
    lines = b'a fine day\r\n{"id": 1, "text": "rain"}\n{no json\nsad'
    found = ask("-", stdin=lines)
    assert [row["text"] for row in found] == ["a fine day", "rain", "{no json", "sad"]
    assert found[1]["id"] == 1
    assert len(ask("--file", "-", stdin=b"rain\nfine\n\nsad\n", code=2)) == 2
    assert len(ask("-", stdin=b"rain\n\xff\n", code=2)) == 1


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("in.csv", "titel,label\na,b\n", (), "in.csv:1 there is no column 'text'; it has titel, label"),
        ("in.csv", "titel,label\na,b\n", ("--column", "title"), "in.csv:1 there is no column 'title'; did you mean"),
        ("in.csv", "text\n", (), "in.csv has no rows; is the file empty?"),
        ("in.jsonl", "", (), "in.jsonl has no rows"),
        ("in.txt", "", (), "in.txt has no rows"),
        ("in.txt", "a\n\nb\n", (), "in.txt:2 the text is '', expected a non-empty string"),
        ("in.txt", "a\n", ("--column", "b"), "in.txt is a text file without columns"),
        ("in.csv", "id,text\n1,a\n2\n", (), "in.csv:3 expected 2 cells as in the first row, got 1"),
        (
            "in.csv",
            "text\na\n\xff\n",
            (),
            "in.csv:3 is not valid utf-8: invalid start byte (byte 0xff); set the right enc",
        ),
        ("in.csv", "text\na\n\xff\n", (), "--encoding NAME"),
        ("in.csv", "titel,label\na,b\n", (), "use --column to name the text column"),
        ("in.jsonl", '{"text": "a"}\n{"title": "a"}\n', (), "in.jsonl:2 missing field 'text'"),
        (
            "in.jsonl",
            '{"text": "a"}\n',
            ("--column", "title"),
            "in.jsonl:1 no column 'title'; available: text",
        ),
        ("in.jsonl", '{"text": 3}\n', (), "in.jsonl:1 the text is 3, expected a non-empty string"),
        ("in.xml", "<a/>", (), "unknown file extension: 'in.xml'; use .csv"),
        ("other.csv", "text\na\n", (), "file not found: 'in.csv'"),
        ("in.csv", "text\na\n", ("--out", "in.csv"), "in.csv is both input and output"),
        ("in.csv", "text\na\n", ("--format", "csv"), "--format csv requires an output file; pass --out FILE.csv"),
        ("in.csv", "text\na\n", ("--split", "dev"), "--text, --file, - and --split are mutually exclusive"),
        ("in.csv", "text\na b c d\n", ("--set", "task.max_length=3"), "in.csv:2: a text has 4 tokens, more than"),
        (
            "in.csv",
            "text,pred\na,bad\n",
            (),
            "in.csv:2 the input already has a field 'pred'; rename or remove",
        ),
        ("in.jsonl", '{"text": "a", "prob": 1}\n', (), "in.jsonl:1 the input already has a field 'prob'"),
        ("in.csv", "text\na\n", ("--batch-size", "0"), "--batch-size must be at least 1"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_one_line(
    name: str,
    text: str,
    options: tuple[str, ...],
    message: str,
    records: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text, "latin-1")
    asked = name if name != "other.csv" else "in.csv"
    assert main(["predict", records["classes"], "--device", "-1", "--file", asked, *options]) == 2
    told = [
        line for line in capsys.readouterr().err.splitlines() if "'last' is used" not in line and "model: " not in line
    ]
    assert len(told) == 1 and message in told[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--text", "a", "--pair", "b", "--pair", "c"), "got 1 --text but 2 --pair; pass one --pair for each --text"),
        (("--text", "a", "--pair", "b"), "--text 1 invalid input ('a', 'b'), expected a text"),
        (("--pair", "b"), "no input given"),
        (("--text", "a", "--column", "b"), "columns require --file"),
        (("-", "--pair", "b"), "columns require --file; pass fields as JSON lines"),
        (("--text", "a", "-"), "are mutually exclusive"),
        (("--text", "a", "b"), "unexpected argument 'b'; put --text before each text"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    words: tuple[str, ...], message: str, records: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", records["classes"], "--device", "-1", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_split_of_the_config_is_answered_with_the_labels_of_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = config(tmp_path, "classes")
    cfg["sched"]["epochs"] = 1
    result = run_task(cfg, raise_errors=True)
    words = [str(result.record_dir), "--device", "-1", "--split", "dev", "--out", "dev.jsonl"]
    assert main(["predict", *words]) == 0
    rows = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    assert [row["pred"] for row in rows] == [row["pred"] for row in result.ret["preds"]]


@pytest.fixture
def talk(records: dict[str, str], tmp_path: Path) -> subprocess.Popen[str]:
    """Start the command, which waits for lines."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-m", "alchemy", "predict", records["classes"], "--device", "-1", "-"]
    return subprocess.Popen(words, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def say(talk: subprocess.Popen[str], text: str) -> None:
    assert talk.stdin is not None
    talk.stdin.write(f"{text}\n")
    talk.stdin.flush()


def test_a_line_is_answered_before_the_next_one_comes_and_an_interrupt_ends_quietly(
    talk: subprocess.Popen[str],
) -> None:
    assert talk.stdout is not None
    with talk:
        for text in ("a fine day", "rain"):
            say(talk, text)
            assert json.loads(talk.stdout.readline())["text"] == text
        talk.send_signal(signal.SIGINT)
        out, err = talk.communicate(timeout=60)
    assert (talk.returncode, out, "Traceback" in err) == (130, "", False)


def test_a_closed_pipe_ends_it_quietly(talk: subprocess.Popen[str]) -> None:
    assert talk.stdout is not None and talk.stderr is not None
    with talk:
        say(talk, "rain")
        assert json.loads(talk.stdout.readline())["text"] == "rain"
        talk.stdout.close()
        say(talk, "fine")
        assert talk.wait(timeout=60) == 141
        assert "rror" not in talk.stderr.read()
