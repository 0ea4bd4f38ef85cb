"""Translation from raw text: one config learns the tokenizers, trains, evaluates, and keeps what prediction needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.cli import main
from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError
from alchemy.runner import run_task
from alchemy.text import load_tokenizer
from tests.tasks.pairs import NETWORKS, WORDS, write_pairs


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("texts")
    for split, count in (("train", 160), ("dev", 20)):
        rows = write_pairs(root, split, count)
        table = "id\tde\ten\n" + "".join(f"{n}\t{two}\t{one}\n" for n, (one, two) in enumerate(rows))
        (root / f"{split}.tsv").write_text(table, "utf-8")
    return root


def config(texts: Path, root: Path, data: dict[str, Any] | None = None, **task: Any) -> dict[str, Any]:
    table = {"train": str(texts / "train.tsv"), "dev": str(texts / "dev.tsv"), "source": "en", "target": "de"}
    return {
        "tag": "t",
        "seed": 4,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": {"type": "alchemy.tasks.Translation", "data": {**(data or table), "max_tokens": 100}, **task},
        "model": {"type": "alchemy.models.Translator", "network": {**NETWORKS["transformer"], "share": "decoder"}},
        "optim": {"type": "alchemy.optim.Adam", "lr": 0.01},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 5, "pipes": []},  # evaluated at the end
        "checkpoint": {"asynchronous": False},
    }


def test_a_table_of_pairs_is_learnt_and_the_record_answers_alone(texts: Path, tmp_path: Path) -> None:
    data = {f: str(Path(tmp_path / f).with_suffix(".tsv")) for f in ("train", "dev")}
    for split, path in data.items():
        Path(path).write_bytes((texts / f"{split}.tsv").read_bytes())
    result = run_task(config(texts, tmp_path, {**data, "source": "en", "target": "de"}), raise_errors=True)
    assert result.ret["bleu"] > 5
    assert result.ret["preds"][0]["target"] == (texts / "dev.de").read_text("utf-8").splitlines()[0]
    record = result.record_dir
    assert load_tokenizer(record / "tokenizer" / "source").encode("dog") != []
    for path in data.values():
        Path(path).unlink()
    with alchemy.load(record) as model:
        (answer,) = model.predict(["a small dog"])
        assert answer["source"] == "a small dog" and set(answer["pred"].split()) <= set(WORDS.values())


def test_all_commands_take_a_record_of_raw_text(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = config(texts, tmp_path, limits={"max_length": 5})
    cfg["task"]["data"]["test"] = cfg["task"]["data"]["dev"]
    cfg["sched"]["epochs"] = 1
    record = str(run_task(cfg, raise_errors=True).record_dir)
    lines = texts / "dev.en"
    capsys.readouterr()
    assert main(["generate", record, "--input", str(lines), "--device", "-1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 20
    assert main(["score", record, "--source", str(lines), "--target", str(texts / "dev.de"), "--device", "-1"]) == 0
    assert main(["export", record, "--format", "ctranslate2", "--device", "-1"]) == 0
    assert main(["test", record, "--device", "-1"]) == 0
    (signature,) = tmp_path.glob("**/results/test_bleu.txt")
    assert "tok:13a|smooth:exp" in signature.read_text()


def test_files_side_by_side_give_the_batches_of_corpora(texts: Path, tmp_path: Path) -> None:
    """Rows, lengths and decoder inputs equal those of corpora.Parallel with the same tokenizers."""
    from alchemy.pipeline.corpora import Parallel
    from alchemy.pipeline.pairs import EncodedPairs, EncodePairs
    from alchemy.pipeline.processors import ParallelText
    from tests.tasks.pairs import build_corpora

    build_corpora(tmp_path)
    corpus = Parallel(str(tmp_path / "dev.en"), str(tmp_path / "dev.de"))
    tokenizers = {side: corpus.corpora[side].tokenizer for side in ("source", "target")}
    pairs = ParallelText([str(tmp_path / "dev.en"), str(tmp_path / "dev.de")])
    raw = EncodedPairs(EncodePairs(pairs, **tokenizers), tokenizers=tokenizers, texts=pairs)
    ours, theirs = raw.collate([3, 0, 7]), corpus.collate([3, 0, 7])
    assert ours.pop("target_text") == [pairs[index]["target"] for index in (3, 0, 7)]
    assert ours.pop("source_text")[0] == pairs[3]["source"]
    assert {name: rows.tolist() for name, rows in ours.items()} == {
        name: rows.tolist() for name, rows in theirs.items()
    }
    assert raw.where(1).endswith("dev.en:2")


@pytest.mark.parametrize(
    ("task", "kinds"),
    [
        ({}, ["BPE", "BPE"]),
        ({"tokenizer": "alchemy.text.Words", "learn": {"lower": True}}, ["Words", "Words"]),
        ({"target_tokenizer": "alchemy.text.Characters"}, ["BPE", "Characters"]),
        ({"shared": True, "learn": {"size": 300}}, ["BPE", "BPE"]),
    ],
)
def test_tokenizers_are_learnt_by_side_or_shared(texts: Path, tmp_path: Path, task: dict[str, Any], kinds: Any) -> None:
    cfg = config(texts, tmp_path, **task) | {"model": {"type": "alchemy.models.Translator"}}
    cfg["sched"]["epochs"], cfg["task"]["search"] = 1, {}
    cfg["task"]["data"]["max_tokens"] = 2000
    folder = run_task(cfg, raise_errors=True).record_dir / "tokenizer"
    found = [load_tokenizer(folder / side) for side in ("source", "target")]
    assert [type(each).__name__ for each in found] == kinds
    assert (found[0].digest == found[1].digest) is bool(task.get("shared"))


def test_the_check_knows_that_raw_text_is_scored_by_bleu(texts: Path, tmp_path: Path) -> None:
    cfg = config(texts, tmp_path) | {"checkpoint": {"monitor": "dev/bleu"}}
    del cfg["sched"]["pipes"]
    assert [str(problem) for problem in check(prepare_cfg(cfg))] == []
    cfg["task"]["search"] = {}
    assert any("no evaluation computes 'bleu'" in str(problem) for problem in check(prepare_cfg(cfg)))


def test_a_resume_and_a_cache_give_the_same_run(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    whole = run_task(config(texts, tmp_path, cache=True), raise_errors=True)
    assert list((tmp_path / ".alchemy" / "cache").iterdir())
    cfg = config(texts, tmp_path)
    cfg["sched"]["epochs"] = 2
    part = run_task(cfg, raise_errors=True).record_dir
    more = alchemy.resume(part, device=[-1], overrides=["sched.epochs=5"], allow=["sched.epochs"], raise_errors=True)
    assert (more.ret["loss"], more.ret["bleu"]) == (whole.ret["loss"], whole.ret["bleu"])


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"tokenizer": "alchemy.text.Folder"}, "alchemy.text.Folder cannot be trained on texts"),
        ({"learn": {"sizes": 9}}, "BPE cannot be trained with sizes, size"),
        ({"data": {"dev": "dev.tsv"}}, "the source tokenizer is unknown; add .task.datasets.train"),
    ],
)
def test_what_cannot_be_learnt_is_told(texts: Path, tmp_path: Path, task: dict[str, Any], message: str) -> None:
    cfg = config(texts, tmp_path)
    cfg["task"] |= task
    with pytest.raises(AlchemyError, match=message):
        run_task(cfg, raise_errors=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en\tde\na dog\tein hund\na cat\t\n", r"bad.tsv:3 the target is empty"),
        ("en\tde\na dog\tein hund\na cat\n", r"bad.tsv:3 .*expected 2 cells as in the first row, got 1"),
        ("english\tde\na dog\tein hund\n", r"bad.tsv:1 there is no column 'en'; .*english"),
    ],
)
def test_bad_pairs_are_told_with_their_line(texts: Path, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.tsv").write_text(text)
    data = {"train": str(tmp_path / "bad.tsv"), "source": "en", "target": "de"}
    with pytest.raises(AlchemyError, match=message):
        run_task(config(texts, tmp_path, data), raise_errors=True)
