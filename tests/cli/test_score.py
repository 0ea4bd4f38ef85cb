"""`alchemy score`: each pair independently of its batch, with the same scores as a search."""

from __future__ import annotations

import io
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import alchemy
from alchemy.cli import main
from alchemy.runner import run_task
from tests.cli.printed import objects
from tests.tasks.pairs import NETWORKS, WORDS, config
from tests.tasks.texts import config as texts_config

SOURCES = ["a dog", "", "small cat sees a dog", "a", "  ", "the größte ZEBRA"]
TARGETS = ["ein hund", "kater", "kleiner kater sieht ein hund läuft", "ein ein ein", "", "ein ZEBRA"]


def scored(record: str, capsys: Any, *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert main(["score", record, "--device", "-1", *words]) == code
    read = capsys.readouterr()
    return read.err if code else (read.out, read.err)


def files(folder: Path, sources: list[str], targets: list[str]) -> list[str]:
    words = []
    for name, lines in (("source", sources), ("target", targets)):
        (folder / f"in.{name}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        words += [f"--{name}", str(folder / f"in.{name}")]
    return words


def test_each_pair_has_its_line_and_the_totals_are_told(
    record: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = files(tmp_path, SOURCES, TARGETS)
    out, err = scored(record, capsys, *asked)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [int(count) for _, count in rows] == [3, 0, 7, 4, 0, 3]
    total = sum(float(score) for score, _ in rows)
    assert "6 pairs, 17 tokens, log-probability -" in err and "2 blank, the first on line 2" in err
    *each, last = objects(scored(record, capsys, *asked, "--json", "--per-token")[0])
    assert [(row["source"], row["target"]) for row in each] == list(zip(SOURCES, TARGETS))
    assert [f"{row['score']:.4f}" for row in each] == [score for score, _ in rows]
    assert each[0]["tokens"] == ["ein", "hund", "</s>"] and each[1]["tokens"] == []
    assert all(row["score"] == pytest.approx(sum(row["token_scores"]), abs=1e-6) for row in each)
    assert last["total"]["ppl"] == pytest.approx(math.exp(-total / 17), rel=1e-4)
    assert (last["total"]["pairs"], last["total"]["tokens"], last["total"]["empty"]) == (6, 17, [2, 5])
    spelt = scored(record, capsys, *asked, "--per-token")[0].splitlines()[0].split("\t")[2].split()
    assert [word.rpartition("=")[0] for word in spelt] == ["ein", "hund", "</s>"]
    lines = "".join(f"{one}\t{other}\n" for one, other in zip(SOURCES, TARGETS))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    assert scored(record, capsys)[0] == out
    scored(record, capsys, *asked, "--output", str(tmp_path / "out.txt"))
    assert (tmp_path / "out.txt").read_text() == out


def test_a_text_is_scored_as_the_search_scored_it(record: str, tmp_path: Path, capsys: Any) -> None:
    asked = files(tmp_path, ["a dog", "small cat sees a dog", "runs"], [])
    words = ["--input", asked[1], "--json", "--nbest", "3", "--min-length", "1", "--device", "-1"]
    assert main(["generate", record, *words]) == 0
    found = objects(capsys.readouterr().out)
    pairs = [(row["source"], text) for row in found for text in row["nbest"]]
    asked = files(tmp_path, *map(list, zip(*pairs)))
    *each, _ = objects(scored(record, capsys, *asked, "--json", "--per-token")[0])
    tokens, logs, scores = (
        [part for row in found for part in row[key]] for key in ("tokens", "token_scores", "scores")
    )
    assert [row["tokens"] for row in each] == tokens
    for row, told in zip(each, logs, strict=True):
        assert row["token_scores"] == pytest.approx(told, abs=1e-4)
    assert [row["score"] / row["count"] for row in each] == pytest.approx(scores, abs=1e-4)


@pytest.fixture(scope="module", params=NETWORKS)
def models(request: Any, corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    cfg = config(corpora, tmp_path_factory.mktemp(request.param), request.param)
    cfg["sched"]["epochs"] = 1
    folder = str(run_task(cfg, raise_errors=True).record_dir)
    with alchemy.load(folder, batch_size=1) as alone, alchemy.load(folder, batch_size=5) as together:
        yield alone, together


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_score_does_not_depend_on_what_else_is_scored(models: Any, data: st.DataObject) -> None:
    alone, together = models
    text = st.lists(st.sampled_from([*WORDS, *WORDS.values(), "ZEBRA"]), min_size=1, max_size=9).map(" ".join)
    pairs = data.draw(st.lists(st.tuples(text, text), min_size=1, max_size=12))
    order = data.draw(st.permutations(range(len(pairs))))
    single = [row["token_scores"] for row in alone.predict(pairs)]
    found = together.predict([pairs[place] for place in order])
    for place, row in zip(order, found, strict=True):
        assert row["token_scores"] == pytest.approx(single[place], abs=1e-4)


def test_what_cannot_be_is_told(
    record: str, corpora: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = files(tmp_path, ["a dog"] * 3, ["ein hund"] * 2)
    told = scored(record, capsys, *asked, code=2)
    assert "in.source:3" in told and "in.target has only 2 lines" in told
    asked = files(tmp_path, ["a dog"], ["ein hund"] * 2)
    told = scored(record, capsys, *asked, code=2)
    assert "in.target:2" in told and "in.source has only 1 lines" in told
    assert "--source and --target must be given together" in scored(record, capsys, *asked[:2], code=2)
    assert "file not found" in scored(record, capsys, *asked[:2], "--target", "none.de", code=2)
    assert "is both input and output" in scored(record, capsys, *asked, "--output", asked[3], code=2)
    assert Path(asked[3]).read_text() == "ein hund\n" * 2
    for line in (b"a dog\n", b"a\tein\tkater\n"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a dog\tein hund\n" + line)))
        assert "stdin:2 the line has" in scored(record, capsys, code=2)
    other = str(run_task(texts_config(tmp_path, "classes"), raise_errors=True).record_dir)
    assert "Classification does not generate text" in scored(other, capsys, *asked, code=2)


def test_texts_that_are_too_long_are_told_with_their_line(corpora: Path, tmp_path: Path, capsys: Any) -> None:
    cfg = config(corpora, tmp_path, search={})
    cfg["sched"]["epochs"] = 1
    cfg["model"]["network"] = NETWORKS["transformer"] | {"places": "learned", "max_positions": 5}
    record = str(run_task(cfg, raise_errors=True).record_dir)
    asked = files(tmp_path, ["a dog", "a"], ["ein hund", "ein hund läuft ein hund"])
    told = scored(record, capsys, *asked, code=2)
    assert "in.source:2 the target has 6 tokens with EOS, but the model takes at most 5" in told
    asked = files(tmp_path, ["a dog", "a dog sees a dog"], ["ein hund", "ein"])
    assert "in.source:2 a text has 6 tokens, but the model takes at most 5" in scored(record, capsys, *asked, code=2)
    asked = files(tmp_path, ["a dog sees a"], ["ein hund läuft ein"])  # all positions are used
    assert scored(record, capsys, *asked)[0].endswith("\t5\n")
