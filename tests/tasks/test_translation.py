"""Translation from a config: train, generate, evaluate, and resume exactly."""

from __future__ import annotations

import math
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.errors import AlchemyError
from alchemy.records.ledger import read_ledger
from alchemy.runner import run_task
from alchemy.text import Words
from alchemy.verify.compare_records import compare
from tests.tasks.pairs import NETWORKS, config
from tests.toy import Interrupt


@pytest.mark.parametrize("network", NETWORKS)
def test_it_learns_to_translate_word_by_word(network: str, corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path, network, alignments="words")
    cfg["sched"]["epochs"] = 30
    found = run_task(cfg, raise_errors=True).ret
    assert found["bleu_words"] > 60 and found["bleu"] > 60 and found["chrf"] > 60
    sources = (corpora / "dev.en").read_text("utf-8").splitlines()
    assert [row["source"] for row in found["preds"]] == sources  # in data order, not by length
    assert [row["target"] for row in found["preds"]] == (corpora / "dev.de").read_text("utf-8").splitlines()
    right = [row for row in found["preds"] if row["pred"] == row["target"]]
    straight = [row["alignments"] == [[(place, place) for place in range(len(row["pred"].split()))]] for row in right]
    assert network != "lstm" or sum(straight) > len(straight) / 2  # it attends to the word that it translates


def test_training_data_are_shuffled_unless_the_split_says_otherwise(corpora: Path, tmp_path: Path) -> None:
    def epochs(**table: Any) -> list[list[str]]:
        cfg = config(corpora, tmp_path / str(len(table)))
        cfg["task"]["datasets"]["train"] |= table
        cfg["sched"]["epochs"] = 2
        rows = [row for _, row in read_ledger(Path(run_task(cfg, raise_errors=True).record_dir) / "ledger.jsonl")]
        return [[row["ids"] for row in rows if row["epoch"] == epoch and "ids" in row] for epoch in range(2)]

    one, other = epochs()
    assert one != other
    one, other = epochs(shuffle=False)
    assert one == other


def test_it_goes_on_as_if_it_had_never_stopped(corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run_task(config(corpora, tmp_path / "one"), raise_errors=True)
    monkeypatch.setattr(Interrupt, "at", 40)
    cut = run_task(config(corpora, tmp_path / "two"), raise_errors=True)
    assert cut.signal == signal.SIGINT and cut.record_dir is not None
    monkeypatch.setattr(Interrupt, "at", 0)
    alchemy.resume(cut.record_dir, raise_errors=True)
    assert compare(Path(str(whole.record_dir)), Path(cut.record_dir)).differences == []


def test_a_record_translates_texts_by_itself(corpora: Path, tmp_path: Path) -> None:
    home = tmp_path / "corpora"
    shutil.copytree(corpora, home)
    cfg = config(home, tmp_path)
    cfg["sched"]["epochs"] = 2
    result = run_task(cfg, raise_errors=True)
    shutil.rmtree(home)
    texts = ["a dog", "a", "the unknown cat sees a small dog", "small"]
    with alchemy.load(str(result.record_dir), batch_size=2) as model:
        found = model.predict(texts)
        assert [row["source"] for row in found][:2] == ["a dog", "a"]
        assert [row["pred"] for row in found] == [model.predict([text])[0]["pred"] for text in texts]


def test_padding_in_front_and_what_is_drawn_change_nothing(corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path)
    cfg["sched"]["epochs"] = 1
    plain = run_task(cfg, raise_errors=True)
    for split in cfg["task"]["datasets"].values():
        split["pipes"][0]["left_source"] = True
    assert run_task(cfg, raise_errors=True).ret["loss"] == pytest.approx(plain.ret["loss"], rel=1e-4)
    texts = ["a dog sees a cat", "a", "small cat"]
    drawn = ['task.search={type="alchemy.generate.Sampling", nbest=2}']
    with alchemy.load(str(plain.record_dir), batch_size=2, overrides=drawn) as model:
        together = model.predict(texts)
        assert [row["nbest"] for row in together] == [model.predict([text])[0]["nbest"] for text in texts]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_text_is_as_likely_as_the_search_found_it(network: str, corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path, network)
    cfg["sched"]["epochs"] = 2
    result = run_task(cfg, raise_errors=True)
    texts = ["a dog", "a", "the unknown cat sees a small dog", "small"]
    wanted = ["task.tokens=true", "task.limits={min_length=1}", "task.search.nbest=2"]
    with alchemy.load(str(result.record_dir), batch_size=3, overrides=wanted) as model:
        found = model.predict(texts)
        assert [len(row["nbest"]) for row in found] == [2] * 4
        scored = model.predict([(text, row["pred"]) for text, row in zip(texts, found)])
        for row, told in zip(found, scored, strict=True):
            assert told["tokens"] == row["tokens"][0] and told["tokens"][-1] == "</s>"
            assert told["token_scores"] == pytest.approx(row["token_scores"][0], abs=1e-4)
            assert told["score"] / len(told["tokens"]) == pytest.approx(row["score"], abs=1e-4)
            (alone,) = model.predict([{"text": told["text"], "pair": told["pair"]}])
            assert alone["score"] == pytest.approx(told["score"], abs=1e-4)
        pairs = [(corpora / f"dev.{side}").read_text("utf-8").splitlines() for side in ("en", "de")]
        rows = model.predict(list(zip(*pairs, strict=True)))
    mean = sum(row["score"] for row in rows) / sum(len(row["tokens"]) for row in rows)
    assert result.ret["ppl"] == pytest.approx(math.exp(-mean), rel=1e-4)  # label smoothing has no effect on it
    assert result.ret["ppl"] != pytest.approx(math.exp(result.ret["loss"]), rel=1e-2)


@pytest.mark.parametrize("network", NETWORKS)
def test_each_word_knows_the_word_that_it_was_written_for(network: str, corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path, network, alignments="words", limits={"min_length": 2})
    cfg["sched"]["epochs"] = 1
    record = str(run_task(cfg, raise_errors=True).record_dir)
    texts = ["a dog sees", "small cat", "a"]
    with alchemy.load(record, batch_size=2) as model:
        found = model.predict(texts)
    for text, row in zip(texts, found, strict=True):
        (pairs,) = row["alignments"]
        assert [other for _, other in sorted(pairs, key=lambda pair: pair[1])] == list(range(len(row["pred"].split())))
        assert all(one < len(text.split()) for one, _ in pairs)


def test_a_text_begins_as_it_is_told(corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path)
    cfg["sched"]["epochs"] = 1
    texts = [{"text": "a dog sees", "prefix": "kater läuft"}, "a dog"]
    with alchemy.load(str(run_task(cfg, raise_errors=True).record_dir)) as model:
        begun, free = model.predict(texts)
        assert begun["pred"].startswith("kater läuft") and free["pred"] == model.predict(["a dog"])[0]["pred"]
        with pytest.raises(AlchemyError, match=r"items\[0\] the prefix is 3, expected a string"):
            model.predict([{"text": "a", "prefix": 3}])


def test_a_record_without_a_search_says_what_it_lacks(corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path, search={})
    cfg["sched"]["epochs"] = 1
    record = str(run_task(cfg, raise_errors=True).record_dir)
    with alchemy.load(record) as model, pytest.raises(AlchemyError, match=r"no `search` table.*BeamSearch"):
        model.predict(["a dog"])


def test_without_a_search_only_the_loss_is_known(corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path, search={})
    cfg["sched"]["epochs"] = 1
    found = run_task(cfg, raise_errors=True).ret
    assert found["loss"] > 0 and "bleu" not in found and "preds" not in found


def test_sentences_longer_than_the_places_are_told_before_training_or_left_out(corpora: Path, tmp_path: Path) -> None:
    cfg = config(corpora, tmp_path)
    cfg["sched"]["epochs"] = 1
    cfg["model"]["network"] = NETWORKS["transformer"] | {"places": "learned", "max_positions": 4}
    with pytest.raises(AlchemyError, match=r"train.en:\d+ .*the source has 5 tokens, but the network takes at most 4"):
        run_task(cfg, raise_errors=True)
    for split in cfg["task"]["datasets"].values():
        split["too_long"] = "skip"
    found = run_task(cfg, raise_errors=True).ret
    assert all(len(row["pred"].split()) <= 3 for row in found["preds"])  # output ends at the last position


def test_what_cannot_be_is_told(corpora: Path, tmp_path: Path) -> None:
    def refused(message: str, **task: Any) -> None:
        with pytest.raises(AlchemyError, match=message):
            run_task(config(corpora, tmp_path, **task), raise_errors=True)

    refused("Limits has no option 'max_lenght'; did you mean 'max_length'", limits={"max_lenght": 3})
    refused("max_length must be an integer, not the string '9'", limits={"max_length": "9"})
    refused("Limits has no option 'max_lenght'", limits={"max_lenght": 3}, search={})  # although nothing is written yet
    refused("max_extra must be at most 1000000000", limits={"max_extra": 10**20})
    refused("max_length = 3 must be at least min_length = 4", limits={"max_length": 3, "min_length": 4})
    refused("beam must be at least 1, not 0", search={"type": "alchemy.generate.BeamSearch", "beam": 0})
    refused("nbest = 9 must be at most beam = 5", search={"type": "alchemy.generate.BeamSearch", "nbest": 9})
    Words.train(["a dog"]).save(tmp_path / "words")
    both = {f"{side}_tokenizer": str(tmp_path / "words") for side in ("source", "target")}
    refused(r"train.en encodes 'source' with different ids than \S+words", **both)
    refused("alignments must be one of '', 'words', 'tokens', not the string 'word'", alignments="word")
    refused("the source tokenizer is unknown", datasets={"train": {"pipes": []}})
