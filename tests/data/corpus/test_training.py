"""Training on a mapped corpus with a token budget: every sample once per epoch, exact resume, split among ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn
from torch.nn import functional

from alchemy import resume
from alchemy.data.corpus.build import build
from alchemy.data.corpus.recipe import Recipe
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.records.status import status_of
from alchemy.runner import run
from alchemy.verify.compare_records import compare, last_update
from alchemy.verify.ledger import verify_ledger
from tests.toy import config


class Bag(AlchemyModel):
    """Predict the words of a sentence from the previous ones, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Embedding(40, 8, padding_idx=0), nn.Dropout(0.2), nn.Linear(8, 40))

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        logits = self.model(batch["prev_output_tokens"])
        target = batch["target"]
        loss_sum = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=0, reduction="sum")
        count = int(batch["target_lengths"].sum())
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"loss": loss, "loss_sum": loss_sum.detach(), "count": count}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for side, factor in (("en", 3), ("de", 5)):
        lines = [" ".join(f"{side}{(i * factor + n) % 30}" for n in range(1 + i * factor % 11)) for i in range(60)]
        (folder / side).write_text("".join(f"{line}\n" for line in lines))
    build(Recipe(folder / "c", {side: [folder / side] for side in ("en", "de")}))
    return folder / "c"


def training(corpus: Path, log_dir: Path, **changes: Any) -> dict[str, Any]:
    cfg = config(log_dir)
    pipe = {"type": "alchemy.pipeline.corpora.Parallel", "source": f"{corpus}.en", "target": f"{corpus}.de"}
    split = {"max_tokens": 40, "required_batch_size_multiple": 2, "shuffle": True, "pipes": [pipe]}
    cfg["task"]["datasets"] = {"train": split | changes}
    cfg["task"].pop("evalpipes", None)
    cfg["model"] = {"type": f"{__name__}.Bag"}
    cfg["sched"] |= {"epochs": 3, "pipes": []}
    return cfg


def record_of(cfg: dict[str, Any]) -> Path:
    (result,) = run([cfg], device=[-1], raise_errors=True)
    return Path(result.record_dir)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_is_seen_once_an_epoch(corpus: Path, tmp_path: Path, workers: int) -> None:
    record = record_of(training(corpus, tmp_path, num_workers=workers))
    report = verify_ledger(record)
    assert report.holds
    assert [str(epoch).endswith("each once") for epoch in report.epochs] == [True] * 3


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    whole = record_of(training(corpus, tmp_path / "whole"))
    stopped = training(corpus, tmp_path / "stopped")
    stopped["sched"]["pipes"] = [{"type": "tests.toy.SignalAt", "step": 16}]
    record = record_of(stopped)
    assert last_update(record) == 17
    resume(record, device=[-1], raise_errors=True)
    assert str(compare(whole, record)).startswith("equal: ")
    assert verify_ledger(record).holds


def test_a_corpus_that_was_built_anew_from_other_text_is_refused(corpus: Path, tmp_path: Path) -> None:
    copy, backwards = tmp_path / "c", tmp_path / "de"
    files = {side: [corpus.parent / side] for side in ("en", "de")}
    backwards.write_text("".join(reversed(files["de"][0].read_text().splitlines(keepends=True))))
    build(Recipe(copy, files))
    cfg = training(copy, tmp_path / "records")
    cfg["sched"]["pipes"] = [{"type": "tests.toy.SignalAt", "step": 5}]
    record = record_of(cfg)
    build(Recipe(copy, files | {"de": [backwards]}))  # the same words
    with pytest.raises(AlchemyError, match=r"the training data had contents = .* and now has .*--allow data"):
        resume(record, device=[-1], raise_errors=True)
    build(Recipe(copy, files | {"en": files["de"]}))  # the same number of sentences, with other words
    with pytest.raises(AlchemyError, match=r"encodes 'source' with different ids than .*tokenizer/source"):
        resume(record, device=[-1], raise_errors=True)
    assert status_of(record) == "stopped"  # unchanged: nothing has failed
    build(Recipe(copy, files))
    resume(record, device=[-1], raise_errors=True)
    assert verify_ledger(record).holds


def test_a_dev_set_with_a_vocabulary_of_its_own_is_refused(corpus: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    (tmp_path / "text").write_text("de1 de2\nen3\n")
    build(Recipe(dev, {side: [tmp_path / "text"] for side in ("en", "de")}))
    cfg = training(corpus, tmp_path / "records")
    cfg["task"]["datasets"]["dev"] = training(dev, tmp_path)["task"]["datasets"]["train"]
    with pytest.raises(AlchemyError, match=r"dev\.en encodes 'source' with different ids than .*c\.en: .* --like"):
        run([cfg], device=[-1], raise_errors=True)
