"""Options of text tasks and models: each has its documented effect, and none by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import alchemy
from alchemy.data.collate import Pad
from alchemy.errors import AlchemyError
from alchemy.models.encoders import Embedding, Recurrent, Transformer
from alchemy.pipeline import EndStepPipeline
from alchemy.runner import run_task
from tests.models.tiny import padded, ragged, words
from tests.tasks.texts import config
from tests.text.kinds import Utf8
from tests.trained import trained


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: trained(tmp_path_factory.mktemp(kind), kind)[0] for kind in ("classes", "pairs", "tagging")}


@pytest.mark.parametrize("kind", [Embedding, Recurrent, Transformer])
@torch.no_grad()
def test_a_share_of_the_words_is_unknown_in_training_only(kind: Any) -> None:
    torch.manual_seed(0)
    lookup: Any = kind(words(), dim=8, word_dropout=0.3, dropout=0.0).embed
    rows = padded(ragged([2000, 1500]))
    plain = lookup.table(rows.ids_BT) * rows.real_BT[..., None]
    assert torch.equal(lookup.eval()(rows), plain)
    found = lookup.train()(rows)
    other = (found != plain).any(-1)
    assert (found[other] == lookup.table.weight[words().unk]).all()
    assert other.sum() / rows.real_BT.sum() == pytest.approx(0.3, abs=0.03)
    assert not other[~rows.real_BT].any()


def test_words_become_unknown_only_where_the_tokenizer_has_such_a_word() -> None:
    with pytest.raises(AlchemyError, match="word_dropout needs an unknown token"):
        Embedding(Utf8(), word_dropout=0.1)


def test_probabilities_of_all_labels_are_told_when_asked_for(records: dict[str, Path]) -> None:
    with alchemy.load(records["classes"], overrides=["task.probabilities=true"]) as model:
        (answer,) = model.predict(["a fine day"])
    assert list(answer["probs"]) == ["bad", "good"]
    assert sum(answer["probs"].values()) == pytest.approx(1)
    assert answer["probs"][answer["pred"]] == answer["prob"] == max(answer["probs"].values())
    with alchemy.load(records["classes"]) as model:
        assert list(model.predict(["a fine day"])[0]) == ["text", "pred", "prob"]


@pytest.mark.parametrize(("left", "row"), [(False, [0, 1, 4, 4]), (True, [4, 4, 0, 1])])
def test_padding_has_a_segment_of_its_own(left: bool, row: list[int], records: dict[str, Path]) -> None:
    overrides = ["task.segment=4", f"task.left={str(left).lower()}", "task.template='$A $B:1'"]
    with alchemy.load(records["pairs"], overrides=overrides) as model:
        task: Any = model.run.task
        samples = task.encoded([{"text": "fine", "pair": "sun"}, {"text": "a day", "pair": "sad rain"}])
        batch = Pad(**task.collate_options())([samples[0], samples[1]])
        assert batch["segments"].tolist() == [row, [0, 0, 1, 1]]


@pytest.mark.parametrize("rules", [True, False])
def test_only_rules_keep_a_chain_from_rows_that_the_scheme_forbids(rules: bool, records: dict[str, Path]) -> None:
    with alchemy.load(records["tagging"], overrides=[f"model.rules={str(rules).lower()}"]) as model:
        task: Any = model.run.task
        with torch.no_grad():  # for any text: the end of a name without a beginning
            for param in model.run.model.module.parameters():
                param.zero_()
            model.run.model.module.out.bias[task.labels.index("E-NAME")] = 5.0
        (answer,) = model.predict(["小明在北京"])
    assert bool(task.scheme.violations(answer["pred"])) is not rules
    assert rules or answer["pred"] == ["E-NAME"] * 5


class Rates(EndStepPipeline):
    """Record the learning rates and their parameter groups after each step."""

    seen: ClassVar[list[tuple[list[float], list[set[str]]]]] = []

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        names = {id(param): name.split(".")[0] for name, param in self.run.model.module.named_parameters()}
        groups = [{names[id(param)] for param in group["params"]} for group in self.run.optim.param_groups]
        self.seen.append((self.run.optim.get_lr(), groups))
        return kwargs


def test_the_encoder_has_a_rate_of_its_own_and_one_schedule_scales_both(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    cfg["model"]["head"] = {"type": "alchemy.models.heads.Attention", "hidden": 8}
    cfg["optim"] |= {"lr": 0.02, "trf_lr": 0.002}
    pipes = [{"type": f"{__name__}.Rates"}]
    cfg["sched"] = {"type": "alchemy.sched.LineWarmup", "epochs": 2, "num_warmup_steps": 4, "pipes": pipes}
    Rates.seen.clear()
    run_task(cfg, raise_errors=True)
    rates = [rate for rate, _ in Rates.seen]
    assert all(groups == [{"encoder"}, {"head", "out"}] for _, groups in Rates.seen)
    assert [inner for inner, _ in rates] == pytest.approx([outer / 10 for _, outer in rates])
    assert max(outer for _, outer in rates) == pytest.approx(0.02) and len({outer for _, outer in rates}) > 4
