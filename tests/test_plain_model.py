"""A plain nn.Module as a model: its inputs, the names of its outputs, and its loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from loguru import logger
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.legacy.adapt import build_updater
from alchemy.loss_observer import Loss
from alchemy.optim import build_optimizer
from alchemy.plain_model import PlainModel, build_model
from alchemy.sched import build_sched
from alchemy.task import DefaultTask, loss_of

CROSS_ENTROPY = {"type": "alchemy.nn.losses.CrossEntropy", "target": "label"}


class Net(nn.Module):
    """Scores of three classes, in float64; records its arguments."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.out = nn.Linear(2, width).double(), nn.Linear(width, 3).double()
        self.got: dict[str, Any] = {}

    def forward(self, x: Tensor, scale: Any = None, **kwargs: Any) -> Any:
        self.got = {"x": x, "scale": scale, **kwargs}
        scores: Tensor = self.out(torch.tanh(self.inner(x)))
        return scores


class Returning(Net):
    """Return scores in the form named `how`."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        scores = super().forward(x)
        match self.how:
            case "tuple":
                return scores, scores.sum(-1)
            case "dict":
                return {"scores": scores, "total": scores.sum(-1)}
            case "loss":
                return {"logits": scores, "loss": scores.square().mean()}
            case "text":
                return "scores"
        return scores


class Nothing(nn.Module):
    """A constructor without arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(2, 3).double()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(x)
        return scores


class Greedy(nn.Module):
    """Takes a name that alchemy reserves."""

    def __init__(self, freeze: bool = False) -> None:
        super().__init__()


def wide(width: int) -> nn.Module:
    return Net(width)


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertForSequenceClassification(BertConfig(vocab_size=11, num_labels=3, **sizes)).double().eval()


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=16, n_embd=8, n_layer=1, n_head=2)).double().eval()


def not_a_module() -> str:
    return "a text"


@contextmanager
def training(model: Mapping[str, Any], criterion: Mapping[str, Any] | None = None, period: int = 1) -> Iterator[Run]:
    name = model.get("type", "Net")
    cfg: dict[str, Any] = {
        "model": {**model, "type": name if "." in name else f"{__name__}.{name}"},
        "backward": {"period": period},
        "optim": {"type": "torch.optim.SGD", "lr": 1.0},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 1},
        **({"criterion": dict(criterion)} if criterion else {}),
    }
    with Run(cfg) as run:
        run.task, run.model = DefaultTask(), build_model(run)
        run.optim, run.train_sched = build_optimizer(run), build_sched(run)
        run.updater = build_updater(run, run.model)
        yield run


def batch_of(count: int = 6) -> dict[str, Tensor]:
    numbers = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, generator=numbers, dtype=torch.float64)
    return {"x": x, "label": torch.arange(count) % 3}


def loss_in(run: Run, batch: Any) -> Loss:
    return loss_of(run.model, run.model.forward(batch), batch)


def messages_of(level: str) -> tuple[list[str], int]:
    lines: list[str] = []
    return lines, logger.add(lines.append, level=level, format="{message}")


# -- inputs
def test_fields_go_to_forward_by_name_and_others_stay_away() -> None:
    with training({}) as run:
        batch = batch_of()
        assert isinstance(run.model, PlainModel)
        assert run.model.forward(batch)["logits"].shape == (6, 3)
        assert run.model.module.got == {"x": batch["x"], "scale": None}


def test_a_parameter_with_a_default_gets_its_field_where_there_is_one() -> None:
    with training({}) as run:
        run.model.forward({**batch_of(), "scale": 2})
        assert run.model.module.got["scale"] == 2


def test_inputs_map_fields_of_another_name_and_reach_kwargs() -> None:
    with training({"inputs": {"x": "points", "names": "words"}}) as run:
        batch = batch_of()
        run.model.forward({"points": batch["x"], "words": ["a"], "label": batch["label"]})
        assert run.model.module.got == {"x": batch["x"], "scale": None, "names": ["a"]}


def test_inputs_for_a_parameter_that_forward_lacks_are_refused() -> None:
    table = {"type": "Nothing", "inputs": {"xx": "points"}}
    with pytest.raises(AlchemyError, match=r"Nothing\.forward has no parameter 'xx'; did you mean"), training(table):
        pass


def test_a_tuple_goes_by_position_and_its_last_element_is_the_target() -> None:
    x, label = batch_of().values()
    with training({}, {"type": CROSS_ENTROPY["type"]}) as run:
        found = loss_in(run, (x, label))
        assert run.model.module.got == {"x": x, "scale": None}
        torch.testing.assert_close(
            found.sum, functional.cross_entropy(found.outputs["logits"], label, reduction="sum"), rtol=0, atol=0
        )
    with training({}) as run:  # no target is needed
        run.model.forward((x, 2, "left over"))
        assert run.model.module.got == {"x": x, "scale": 2}


def test_a_bare_tensor_is_the_one_argument() -> None:
    with training({}) as run:
        assert run.model.forward(batch_of()["x"])["logits"].shape == (6, 3)


def test_a_missing_field_is_one_clear_error() -> None:
    with (
        training({}) as run,
        pytest.raises(AlchemyError, match=r"Net\.forward needs 'x', but the batch has no field 'x'"),
    ):
        run.model.forward({"points": 1})
    with training({"type": "Returning", "how": "dict"}) as run, pytest.raises(AlchemyError, match="needs 1 arguments"):
        run.model.forward(())


# -- names of outputs
@pytest.mark.parametrize(
    ("how", "outputs", "names"),
    [
        ("tensor", None, ["logits"]),
        ("tensor", ["y"], ["y"]),
        ("tensor", "y", ["y"]),
        ("tuple", ["logits", "total"], ["logits", "total"]),
        ("dict", None, ["scores", "total"]),
    ],
)
def test_outputs_have_names(how: str, outputs: Any, names: list[str]) -> None:
    table = {"type": "Returning", "how": how} | ({"outputs": outputs} if outputs else {})
    with training(table) as run:
        found = run.model.forward(batch_of())
        assert list(found) == names
        assert found[names[0]].shape == (6, 3)


def test_a_model_output_stays_as_it_is() -> None:
    from transformers.utils import ModelOutput

    with training({"type": "bert"}) as run:
        found = run.model.forward({"input_ids": torch.ones(2, 3, dtype=torch.long)})
        assert isinstance(found, ModelOutput)
        assert found["logits"].shape == (2, 3)


@pytest.mark.parametrize(("how", "text"), [("tuple", "returned 2 values, but .* names 1"), ("text", "returned a str")])
def test_outputs_without_names_are_one_clear_error(how: str, text: str) -> None:
    with training({"type": "Returning", "how": how}) as run, pytest.raises(AlchemyError, match=text):
        run.model.forward(batch_of())


# -- construction
def test_a_function_may_return_the_module() -> None:
    with training({"type": "wide", "width": 7}) as run:
        assert run.model.module.inner.out_features == 7


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"type": "Greedy"}, r"'freeze' is both a reserved key of \[model\] and an argument of .*Greedy"),
        ({"type": "not_a_module"}, "returned a str, expected an nn.Module"),
        ({"widht": 3}, "has no option 'widht'"),
        ({"type": "Nothing", "width": 3}, "Nothing has no option 'width'"),
        ({"type": "Nott"}, "has no AlchemyModel named 'Nott'"),
        ({"freeze": "outer"}, "no parameter matches 'outer'"),
        ({"load": "nowhere.safetensors"}, "file not found: nowhere.safetensors"),
    ],
)
def test_what_cannot_be_built_is_one_clear_error(table: dict[str, Any], text: str) -> None:
    with pytest.raises(AlchemyError, match=text), training(table):
        pass


def test_frozen_parameters_are_not_trained() -> None:
    with training({"freeze": ["inner"]}, CROSS_ENTROPY) as run:
        before = {name: param.detach().clone() for name, param in run.model.named_parameters()}
        update(run, [batch_of()])
        moved = {name for name, param in run.model.named_parameters() if not torch.equal(param, before[name])}
        assert moved == {"out.weight", "out.bias"}


def test_load_takes_what_fits_and_model_path_everything(tmp_path: Path) -> None:
    other = {name: torch.full_like(value, 0.5) for name, value in Net().state_dict().items()}
    save_file(other, tmp_path / "model.safetensors")
    with training({"load": str(tmp_path), "width": 5}) as run:  # only the bias of the output layer fits
        own = run.model.state_dict()
        assert {name for name in own if (own[name] == 0.5).all()} == {"out.bias"}
    # a tested record has its own weights: the initial ones may be gone
    with training({"model_path": str(tmp_path), "load": "gone.safetensors"}) as run:
        assert all((value == 0.5).all() for value in run.model.state_dict().values())


# -- choice of the loss
def update(run: Run, batches: list[Any]) -> None:
    """Do one update, as the loop does."""
    for batch in batches:
        with run.updater.micro_batch(batch):
            run.task.step(batch)
        if run.updater.is_full:
            run.updater.step()


def test_the_criterion_scores_an_output_against_the_field_that_target_names() -> None:
    batch = batch_of()
    with training({}, CROSS_ENTROPY) as run:
        found = loss_in(run, batch)
        expected = functional.cross_entropy(found.outputs["logits"], batch["label"], reduction="sum")
        assert (found.sum.item(), found.count) == (expected.item(), 6)
    with training({"type": "Returning", "how": "dict"}, {**CROSS_ENTROPY, "output": "scores"}) as run:
        assert loss_in(run, batch).sum.item() == expected.item()


@pytest.mark.parametrize(
    ("table", "criterion", "text"),
    [
        ({}, None, r"the table is missing, and Net returned no 'loss'"),
        ({}, {"type": CROSS_ENTROPY["type"]}, "does not name the target field"),
        ({}, {**CROSS_ENTROPY, "target": "labl"}, "the batch has no field 'labl'; did you mean 'label'"),
        ({}, {**CROSS_ENTROPY, "output": "logit"}, "the loss needs the output 'logit'; .* did you mean 'logits'"),
        ({"type": "Returning", "how": "dict"}, CROSS_ENTROPY, "'logits'; available: scores, total"),
    ],
)
def test_a_loss_that_cannot_be_computed_is_one_clear_error(table: Any, criterion: Any, text: str) -> None:
    with training(table, criterion) as run, pytest.raises(AlchemyError, match=text):
        loss_in(run, batch_of())


def test_a_loss_of_its_own_without_labels_is_a_mean_and_it_is_said_once() -> None:
    with training({"type": "Returning", "how": "loss"}, period=2) as run:
        found = loss_in(run, batch_of())
        assert (found.is_mean, found.count) == (True, 1)
        lines, number = messages_of("WARNING")
        update(run, [batch_of(4), batch_of(2)])
        logger.remove(number)
    assert len([line for line in lines if "the model returns mean losses" in line]) == 1


def test_the_own_loss_of_a_classifier_counts_its_labels() -> None:
    ids = torch.arange(15).reshape(5, 3) % 11
    batch: dict[str, Any] = {"input_ids": ids, "labels": torch.tensor([0, 1, -100, 2, 1]), "more": ["a"] * 5}
    with training({"type": "bert"}) as run:
        found = loss_in(run, batch)
        expected = functional.cross_entropy(found.outputs["logits"], batch["labels"], reduction="sum")
        torch.testing.assert_close(found.sum, expected, rtol=1e-12, atol=0)
        assert (found.count, found.is_mean) == (4, False)
    with training({"type": "bert", "inputs": {"labels": "label"}}) as run:
        assert loss_in(run, {"input_ids": ids, "label": batch["labels"]}).count == 4


def test_a_causal_language_model_shifts_its_labels_by_one() -> None:
    ids = torch.arange(10).reshape(2, 5)
    labels = torch.where(ids == 8, -100, ids)  # for example padding
    with training({"type": "gpt2"}) as run:
        found = loss_in(run, {"input_ids": ids, "labels": labels})
        logits = found.outputs["logits"][:, :-1].flatten(0, 1)
        expected = functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum")
        # transformers computes its loss in float32
        torch.testing.assert_close(found.sum.double(), expected, rtol=1e-6, atol=0)
        assert found.count == 7


def test_a_batch_in_which_nothing_counts_adds_nothing() -> None:
    ids = torch.arange(6).reshape(2, 3)
    with training({"type": "bert"}) as run:
        found = loss_in(run, {"input_ids": ids, "labels": torch.tensor([-100, -100])})
        found.sum.backward()
        assert (found.sum.item(), found.count) == (0.0, 0)
        assert all(p.grad is None or not p.grad.any() for p in run.model.parameters())


# -- independent of the batch size
def gradients(table: dict[str, Any], criterion: Any, batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    with training(table, criterion, period=len(batches)) as run:
        before = {name: param.detach().clone() for name, param in run.model.named_parameters()}
        update(run, batches)
        return {name: before[name] - param.detach() for name, param in run.model.named_parameters()}


def cut(batch: dict[str, Tensor], sizes: list[int]) -> list[dict[str, Tensor]]:
    rows = [value.split(sizes) for value in batch.values()]
    return [dict(zip(batch, row, strict=True)) for row in zip(*rows, strict=True)]


@pytest.mark.parametrize("sizes", [[3, 3], [5, 1], [1, 2, 3]])
def test_the_gradient_does_not_depend_on_how_the_batch_is_cut(sizes: list[int]) -> None:
    batch = batch_of()
    whole = gradients({}, CROSS_ENTROPY, [batch])
    assert any(grad.any() for grad in whole.values())
    torch.testing.assert_close(gradients({}, CROSS_ENTROPY, cut(batch, sizes)), whole, rtol=1e-12, atol=1e-15)


def test_nor_does_it_with_a_loss_of_its_own_where_labels_are_known() -> None:
    batch = {"input_ids": torch.arange(18).reshape(6, 3) % 11, "labels": torch.tensor([0, -100, 2, -100, -100, 1])}
    whole = gradients({"type": "bert"}, None, [batch])
    found = gradients({"type": "bert"}, None, cut(batch, [1, 2, 3]))
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-14)


def test_the_updater_may_be_named() -> None:
    cfg = {"model": {"type": f"{__name__}.Net"}, "backward": {"type": "alchemy.update.GradientUpdater", "period": 3}}
    with Run(cfg) as run:
        assert build_updater(run, build_model(run)).period == 3
