"""`alchemy generate`: one output per line, in order, for any batch size."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.nn.seq2seq import Network
from alchemy.runner import run_task
from alchemy.text import Words
from tests.cli.printed import objects
from tests.tasks.pairs import NETWORKS, config
from tests.tasks.texts import config as texts_config

LINES = ["a dog", "", "small cat sees a dog", "a", "  ", "the größte ZEBRA"]


def generated(record: str, capsys: Any, *words: str, code: int = 0) -> str:
    # a model trained for two epochs prefers empty output
    assert main(["generate", record, "--device", "-1", "--min-length", "1", *words]) == code
    read = capsys.readouterr()
    return str(read.err if code else read.out)


def test_each_line_has_its_text(record: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.en").write_text("".join(line + "\n" for line in LINES), "utf-8")
    file = str(tmp_path / "in.en")
    found = generated(record, capsys, "--input", file).splitlines()
    assert len(found) == len(LINES) and [not text for text in found] == [not line.strip() for line in LINES]
    assert generated(record, capsys, "--input", file, "--batch-size", "1").splitlines() == found
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert generated(record, capsys).splitlines() == found
    generated(record, capsys, "--input", file, "--output", str(tmp_path / "out.de"))
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == found


def test_several_texts_with_scores_and_draws(record: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text("a dog\n\nsmall cat\n", "utf-8")
    file = str(tmp_path / "in.en")
    rows = [
        row.split("\t") for row in generated(record, capsys, "--input", file, "--nbest", "6", "--scores").splitlines()
    ]
    assert [row[0] for row in rows] == [*["1"] * 6, "2", *["3"] * 6]
    scores = [float(row[1]) for row in rows[:6]]
    assert scores == sorted(scores, reverse=True)
    drawn = [generated(record, capsys, "--input", file, "--sample", "--seed", seed) for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert generated(record, capsys, "--input", file, "--sample", "--temperature", "0") == generated(
        record, capsys, "--input", file, "--beam", "1"
    )
    kept = ("--input", file, "--set", "task.search={type='alchemy.generate.Sampling', nbest=2, seed=1}")
    assert [row[0] for row in generated(record, capsys, *kept).splitlines()] == ["1", "1", "2", "3", "3"]
    assert generated(record, capsys, *kept, "--nbest", "1") == drawn[0]
    short = generated(record, capsys, "--input", file, "--max-length", "1").splitlines()
    assert all(len(text.split()) <= 1 for text in short)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    (tmp_path / "in.en").write_text("".join(line + "\n" for line in LINES), "utf-8")
    return str(tmp_path / "in.en")


def test_an_object_a_line_tells_all_that_is_known(record: str, lines: str, capsys: Any) -> None:
    plain = generated(record, capsys, "--input", lines, "--scores", "--alignments").splitlines()
    rows = [
        json.loads(row) for row in generated(record, capsys, "--input", lines, "--alignments", "--json").splitlines()
    ]
    assert [row["source"] for row in rows] == LINES
    for text, row in zip(plain, rows, strict=True):
        pairs = " ".join(f"{one}-{other}" for one, other in row["alignments"][0])
        assert text == f"{row['score']:.4f}\t{row['pred']}\t{pairs}"
        assert row["nbest"] == [row["pred"]] and row["scores"] == [row["score"]]
        assert [len(part) for part in row["tokens"]] == [len(part) for part in row["token_scores"]]
    assert rows[1]["pred"] == "" and rows[1]["tokens"] == [[]]
    whole = rows[2]
    assert whole["tokens"] == [[*whole["pred"].split(), "</s>"]]
    assert sum(whole["token_scores"][0]) / len(whole["tokens"][0]) == pytest.approx(whole["score"], abs=1e-5)
    assert sorted(other for _, other in whole["alignments"][0]) == list(range(len(whole["pred"].split())))
    several = objects(generated(record, capsys, "--input", lines, "--nbest", "2", "--json"))
    assert [len(row["tokens"]) for row in several] == [2 if line.strip() else 1 for line in LINES]
    assert "alignments" not in several[0]


def test_a_network_that_does_not_tell_what_it_looks_at_is_named(
    record: str, lines: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alchemy.nn.transformer import Transformer

    monkeypatch.setattr(Transformer, "attended", Network.attended)
    found = generated(record, capsys, "--input", lines, "--alignments", code=2)
    assert "alignments are not available: Transformer does not provide attention weights" in found


def test_texts_begin_with_what_a_file_says(record: str, lines: str, tmp_path: Path, capsys: Any) -> None:
    free = generated(record, capsys, "--input", lines).splitlines()
    (tmp_path / "begun.de").write_text("kater läuft\nein\n\nhund\n\n\n", "utf-8")
    words = ("--input", lines, "--prefixes", str(tmp_path / "begun.de"))
    found = generated(record, capsys, *words).splitlines()
    assert found[0].startswith("kater läuft") and found[3].startswith("hund")
    assert [found[place] for place in (1, 2, 4, 5)] == [free[place] for place in (1, 2, 4, 5)]
    (tmp_path / "begun.de").write_text("ein\n" * 3)
    assert (
        "in.en:4" in (told := generated(record, capsys, *words, code=2))
        and "begun.de has no line for this sentence" in told
    )
    (tmp_path / "begun.de").write_text("ein\n" * 7)
    assert "begun.de:7 no sentence for this prefix" in generated(record, capsys, *words, code=2)


def test_options_reach_the_search_and_its_limits(record: str, lines: str, capsys: Any) -> None:
    short = generated(record, capsys, "--input", lines, "--max-ratio", "0", "--max-extra", "2").splitlines()
    assert max(len(text.split()) for text in short) <= 2
    long = generated(record, capsys, "--input", lines, "--min-ratio", "1.5").splitlines()
    assert len(long[2].split()) >= 9  # five words and the end token
    exact = generated(record, capsys, "--input", lines, "--exact", "--scores", "--length-penalty", "0").splitlines()
    plain = generated(record, capsys, "--input", lines, "--scores", "--length-penalty", "0").splitlines()
    assert all(float(one.split()[0]) >= float(two.split()[0]) - 1e-4 for one, two in zip(exact, plain, strict=True))
    groups = ("--beam", "4", "--groups", "2", "--nbest", "4", "--input", lines)
    assert generated(record, capsys, *groups, "--diversity", "0") != generated(record, capsys, *groups)
    assert "beam = 4 must be a multiple of groups = 3" in generated(
        record, capsys, "--beam", "4", "--groups", "3", code=2
    )
    drawn = ("--input", lines, "--sample", "--typical")
    assert generated(record, capsys, *drawn, "0.01") != generated(record, capsys, *drawn, "1")


def test_several_models_write_together(
    record: str, lines: str, corpora: Path, tmp_path: Path, capsys: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cfg = config(corpora, tmp_path_factory.mktemp("other"), "lstm")
    cfg["sched"]["epochs"] = 3
    other = str(run_task(cfg, raise_errors=True).record_dir)
    capsys.readouterr()
    words = ("--input", lines, "--scores", "--alignments")
    alone = generated(record, capsys, *words)
    assert generated(record, capsys, *words, "--ensemble", record) == alone
    both = generated(record, capsys, *words, "--ensemble", other)
    assert both not in (alone, generated(other, capsys, *words))
    assert generated(other, capsys, *words, "--ensemble", record, "--batch-size", "2") == both
    sides = [word for side in ("en", "de") for word in ("--side", f"{side}={corpora / f'train.{side}'}")]
    assert main(["data", "build", str(tmp_path / "train"), *sides, "--multiple", "64", "--workers", "1"]) == 0
    cfg = config(tmp_path, tmp_path, "lstm", search={})
    del cfg["task"]["datasets"]["dev"]
    cfg["sched"]["epochs"] = 1
    odd = str(run_task(cfg, raise_errors=True).record_dir)
    told = generated(record, capsys, *words, "--ensemble", odd, code=2)
    assert f"the source tokenizer of {odd} is Words(64 ids), expected Words(" in told


def test_moses_tokens_are_undone(record: str, lines: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.cli.generate import build_detokenizer

    assert (
        build_detokenizer("de")("ein Zwei @-@ Sitzer , sagt er &quot; laut &quot; .")
        == 'ein Zwei-Sitzer, sagt er "laut".'
    )
    words = ("--input", lines, "--detokenize", "de")
    assert generated(record, capsys, *words) == generated(record, capsys, "--input", lines)  # words only
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    assert "--detokenize needs the package sacremoses" in generated(record, capsys, *words, code=2)


def test_a_line_that_is_too_long_is_named_and_those_before_it_are_answered(
    record: str, corpora: Path, lines: str, tmp_path: Path, capsys: Any
) -> None:
    cfg = config(corpora, tmp_path)
    cfg["sched"]["epochs"] = 1
    cfg["model"]["network"] = NETWORKS["transformer"] | {"places": "learned", "max_positions": 5}
    short = str(run_task(cfg, raise_errors=True).record_dir)
    words = ["generate", short, "--device", "-1", "--input", lines, "--min-length", "1"]
    capsys.readouterr()
    assert main(words) == 2
    read = capsys.readouterr()
    assert len(read.out.splitlines()) == 2 and "in.en:3 a text has 6 tokens, but the model takes at most 5" in read.err
    (tmp_path / "begun.de").write_text("ein hund läuft ein hund\n")
    told = generated(short, capsys, "--input", lines, "--prefixes", str(tmp_path / "begun.de"), code=2)
    assert "in.en:1 the prefix has 6 tokens with EOS, but the model takes at most 5" in told
    together = generated(record, capsys, "--input", lines, "--ensemble", short, code=2)
    assert "in.en:3" in together and "a text has 6 tokens, more than max_length = 5" in together


def test_lines_before_one_that_is_no_text_are_answered(record: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_bytes(b"a dog\na cat runs\n\xff bad\na dog\n")
    words = ["generate", record, "--device", "-1", "--input", str(tmp_path / "in.en")]
    assert main(words) == 2
    read = capsys.readouterr()
    assert len(read.out.splitlines()) == 2 and "in.en:3 is not valid utf-8" in read.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--beam 0", "error: --beam 0 [task.search] BeamSearch: beam must be at least 1"),
        ("--sample --top-p 2", "error: --top-p 2.0 [task.search] Sampling: top_p must be at most 1"),
        ("--max-length 0", "error: --max-length 0 [task.limits] Limits: max_length must be at least 1"),
        ("--nbest 9 --beam 3", "error: --beam 3 --nbest 9 [task.search] nbest = 9 must be at most beam = 3"),
        ("--set task.search.beam=0", "error: command line [task.search] BeamSearch: beam must be at least 1"),
        ("--batch-size 0", "error: --batch-size must be at least 1"),
    ],
)
def test_a_wrong_value_is_told_with_its_option(words: str, told: str, record: str, lines: str, capsys: Any) -> None:
    assert told in generated(record, capsys, "--input", lines, *words.split(), code=2)


def test_a_source_without_bounds_is_refused(record: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text(f"a dog\n{'a dog ' * 150_000}\n")
    words = ["generate", record, "--device", "-1", "--input", str(tmp_path / "in.en")]
    assert main(words) == 2
    read = capsys.readouterr()
    assert len(read.out.splitlines()) == 1 and "a text has 300001 tokens, more than max_length = 1024" in read.err


def test_no_file_is_lost(record: str, lines: str, tmp_path: Path, capsys: Any) -> None:
    words = ("--input", lines, "--output", str(tmp_path / "." / "in.en"))
    assert "is both input and output" in generated(record, capsys, *words, code=2)
    kept = str(tmp_path / "in.en")
    assert "file not found" in generated(record, capsys, "--input", "none.en", "--output", kept, code=2)
    assert Path(lines).read_text("utf-8").splitlines() == LINES
    full = generated(record, capsys, "--input", lines, "--output", "/dev/full", code=2)
    assert "cannot write /dev/full: No space left" in full


def test_weights_of_another_vocabulary_are_one_error(record: str, lines: str, tmp_path: Path, capsys: Any) -> None:
    Words.train(["a dog"]).save(tmp_path / "words")
    other = [f"task.{side}_tokenizer={json.dumps(str(tmp_path / 'words'))}" for side in ("source", "target")]
    words = [word for text in other for word in ("--set", text)]
    told = generated(record, capsys, "--input", lines, *words, code=2)
    assert told.count("error:") == 1 and "Traceback" not in told and "source_table.weight" in told


@pytest.fixture
def talk(record: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "alchemy", "generate", record, "--device", "-1", "--min-length", "1"]
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        process.stdin.write("a dog\n")
        process.stdin.flush()
        assert process.stdout.readline().strip()
        yield process


def test_an_interrupt_ends_it_quietly(talk: subprocess.Popen[str]) -> None:
    talk.send_signal(signal.SIGINT)
    out, err = talk.communicate(timeout=60)
    assert (talk.returncode, out, "Traceback" in err) == (130, "", False)


def test_a_closed_pipe_ends_it_quietly(talk: subprocess.Popen[str]) -> None:
    assert talk.stdout is not None and talk.stdin is not None and talk.stderr is not None
    talk.stdout.close()
    talk.stdin.write("small cat\n")
    talk.stdin.flush()
    assert talk.wait(timeout=60) == 141
    assert "rror" not in talk.stderr.read()


def test_what_cannot_be_is_told(record: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--seed requires --sample" in generated(record, capsys, "--seed", "3", code=2)
    assert "--exact applies to beam search" in generated(record, capsys, "--sample", "--exact", code=2)
    assert "--ensemble requires --engine torch" in generated(
        record, capsys, "--engine", "ctranslate2", "--ensemble", record, code=2
    )
    assert "--beam applies to beam search" in generated(record, capsys, "--sample", "--beam", "3", code=2)
    assert "file not found" in generated(record, capsys, "--input", str(tmp_path / "none.en"), code=2)
    assert f"cannot write {tmp_path}: Is a directory" in generated(record, capsys, "--output", str(tmp_path), code=2)
    assert "is a folder" in generated(record, capsys, "--input", str(tmp_path), code=2)
    with open("/proc/self/mem", "rb") as unreadable:  # the first page of memory
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(unreadable))
        assert "cannot read standard input: Input/output error" in generated(record, capsys, code=2)
    (tmp_path / "in.en").write_bytes(b"a dog\n\xff\xfe\n")
    assert "in.en:2" in generated(record, capsys, "--input", str(tmp_path / "in.en"), code=2)
    (tmp_path / "linked.en").hardlink_to(tmp_path / "in.en")
    both = ("--input", str(tmp_path / "in.en"), "--output", str(tmp_path / "linked.en"))
    assert "linked.en is both input and output" in generated(record, capsys, *both, code=2)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n\nb\xff\n")))
    assert main(["generate", record, "--device", "-1", "--min-length", "1"]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 2  # an empty line before an invalid one gets an output, too
    other = run_task(texts_config(tmp_path, "classes"), raise_errors=True).record_dir
    assert "Classification does not generate text" in generated(str(other), capsys, code=2)


def test_lines_before_one_that_cannot_be_asked_are_answered(
    record: str, lines: str, tmp_path: Path, capsys: Any
) -> None:
    whole = generated(record, capsys, "--input", lines).splitlines()
    short, out = tmp_path / "short.de", tmp_path / "out.de"
    short.write_text("\n\n\n", "utf-8")
    both = ("--input", lines, "--prefixes", str(short), "--output", str(out))
    assert f"{lines}:4 {short} has no line for this sentence" in generated(record, capsys, *both, code=2)
    assert out.read_text("utf-8").splitlines() == whole[:3]


def test_alignments_of_tokens(record: str, lines: str, capsys: Any) -> None:
    # the words of this vocabulary are its tokens; a record may follow the option
    words, tokens = (
        main(["generate", unit, record, "--device", "-1", "--min-length", "1", "--input", lines])
        or capsys.readouterr().out
        for unit in ("--alignments", "--token-alignments")
    )
    assert words == tokens and "-0" in str(words)
