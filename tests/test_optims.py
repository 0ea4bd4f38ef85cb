"""Several optimizers in one task: gradients, accumulation windows, and the count of updates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import alchemy
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.loss_observer import Loss
from alchemy.nn.losses import Focal
from alchemy.optim import Optimizers, build_optimizer
from tests.gan import MEAN, SPREAD, Heaps, config, optims
from tests.gan_ready import SGD, batches, step, training, weights_of
from tests.logs import warned


def names_of(run: Run, params: list[nn.Parameter]) -> list[str]:
    known = {id(param): name for name, param in run.model.named_parameters()}
    return sorted(known[id(param)] for param in params)


# -- the toy model learns
def test_the_toy_gan_learns_the_mean_and_the_spread_of_the_data() -> None:
    sched = {"type": "alchemy.sched.LineWarmup", "num_training_steps": 400}
    (result,) = alchemy.run([config(sched=sched, ema={"decay": 0.98})], device=[-1], raise_errors=True)
    assert result.ret["mean"] == pytest.approx(MEAN, abs=0.3)
    assert result.ret["spread"] == pytest.approx(SPREAD, abs=0.3)


# -- parameters
def test_each_parameter_is_in_exactly_one_of_them() -> None:
    with training() as run:
        assert isinstance(run.optim, Optimizers)
        assert list(run.optim) == ["generator", "discriminator"]
        for name, part in run.optim.items():
            assert names_of(run, part.params) == sorted(
                n for n, _ in run.model.named_parameters() if n.startswith(name)
            )
        assert names_of(run, run.optim.params) == sorted(name for name, _ in run.model.named_parameters())
        assert run.optim.get_lr() == [0.1, 0.1]


def test_a_table_is_that_of_its_own_optimizer() -> None:
    tables = {
        "generator": {
            "type": "alchemy.optim.AdamW",
            "lr": 0.3,
            "no_decay": True,
            "params": ["generator.0", "generator.2"],
        },
        "discriminator": {**SGD, "max_grad_norm": 2.0, "params": "discriminator"},
    }
    with training(optim=tables) as run:
        one, other = run.optim["generator"], run.optim["discriminator"]
        assert [group["weight_decay"] for group in one.param_groups] == [0.01, 0.0]
        assert (one.max_grad_norm, other.max_grad_norm) == (None, 2.0)
        assert (one.get_lr(), other.get_lr(), one.section) == ([0.3, 0.3], [0.1], "optim.generator")
        one.reset(lr=0.5)
        assert run.optim.get_lr() == [0.5, 0.5, 0.1]
        run.optim.reset(lr=0.2)
        assert run.optim.get_lr() == [0.2, 0.2, 0.2]


def test_a_model_may_say_itself_what_each_takes() -> None:
    tables = {name: {**SGD, "bias_lr": 0.7} for name in ("generator", "discriminator")}
    with training(model__type="tests.gan.ByHook", optim=tables) as run:
        assert run.optim["generator"].get_lr() == [0.1, 0.7]
        assert names_of(run, run.optim["generator"].params) == [
            f"generator.{i}.{w}" for i in (0, 2) for w in ("bias", "weight")
        ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"generator": {"params": "genrator"}},
            r"\[optim.generator\] params = 'genrator' matches no parameter of Gan; did you mean 'generator'",
        ),
        (
            {"generator": {"params": ["generator", "zzz"]}},
            r"params = 'zzz' matches no parameter of Gan; it has generator, discriminator",
        ),
        ({"generator": {"params": ""}}, r"params = '' matches no parameter"),
        ({"generator": {"params": []}}, r"params = \[\] matches no parameter"),
        (
            {"generator": {"params": "*.weight"}},
            r"in \[optim.generator\] and in \[optim.discriminator\]: discriminator.0.weight, discriminator.2.weight",
        ),
        (
            {"generator": {"params": None}},
            r'\[optim.generator\] the parameters of this optimizer are not set; .*params = "generator\.\*"',
        ),
        ({"generator": {"type": None}}, r"\[optim.generator\] has no 'type'"),
        (
            {"generator": {"momentun": 0.9}},
            r"\[optim.generator\] torch.optim.SGD has no option 'momentun'; did you mean 'momentum'",
        ),
    ],
)
def test_errors_name_the_optimizer(changes: dict[str, Any], message: str) -> None:
    tables = {name: {**SGD, "params": f"{name}.*", **changes.get(name, {})} for name in ("generator", "discriminator")}
    tables = {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}
    with pytest.raises(AlchemyError, match=message), training(optim=tables):
        pass


def test_what_none_of_them_takes_is_said_once() -> None:
    with warned() as lines, training(optim={"discriminator": {**SGD, "params": "discriminator"}}) as run:
        run.optim.report_missing()
    assert len(lines) == 1
    assert "so not trained: generator.0.weight, generator.0.bias" in lines[0]


def test_the_weights_of_a_loss_are_claimed_by_name() -> None:
    with training() as run:
        run.model.criterion = Focal(learnable=True)
        tables = {**run.cfg["optim"], "loss": {**SGD, "params": "criterion:*"}}
    with training() as run:
        run.model.criterion = Focal(learnable=True)
        run.cfg["optim"] = tables
        run.optim = build_optimizer(run)
        assert names_of(run, run.optim["loss"].params)[0].startswith("criterion:")
        assert run.optim.missing() == []


def test_there_is_no_single_optimizer_to_ask_for() -> None:
    with training() as run:
        with pytest.raises(
            AlchemyError, match=r"several optimizers: generator, discriminator; .*\['generator'\].optimizer"
        ):
            run.optim.optimizer  # noqa: B018
        with pytest.raises(AlchemyError, match="several optimizers"):
            run.optim.optimizer = None
        assert getattr(run.optim, "optimizer", None) is None
        with pytest.raises(AlchemyError, match="no optimizer 'generater'; did you mean 'generator'"):
            run.optim["generater"]


# -- gradients
def test_a_loss_leaves_the_gradients_of_the_others_alone() -> None:
    with training(backward={"period": 2}) as run:
        module, updater = run.model.module, run.updater
        (batch,) = batches(12)
        fake = module.generator(batch["z"].double())
        updater.accumulate(Loss(module.discriminator(fake).sum(), 12), optim="discriminator")
        assert all(param.grad is None for param in module.generator.parameters())
        kept = [param.grad.clone() for param in module.discriminator.parameters()]
        updater.accumulate(Loss(-module.discriminator(fake).sum(), 12), optim="generator")
        assert all(param.grad is not None for param in module.generator.parameters())
        torch.testing.assert_close([param.grad for param in module.discriminator.parameters()], kept, rtol=0, atol=0)


def test_the_second_loss_of_a_step_sees_the_weights_that_the_first_has_moved() -> None:
    (batch,) = batches(12)
    with training() as run:
        step(run, batch)
        ours = weights_of(run)
    with training() as run:  # the same, computed by hand
        x, z, pair = batch["x"].double(), batch["z"].double(), run.model.module
        for name, loss in (
            (
                "discriminator",
                lambda: (
                    nn.functional.softplus(-pair.discriminator(x))
                    + nn.functional.softplus(pair.discriminator(pair.generator(z)))
                ).mean(),
            ),
            ("generator", lambda: nn.functional.softplus(-pair.discriminator(pair.generator(z))).mean()),
        ):
            params = list(getattr(pair, name).parameters())
            for param, grad in zip(params, torch.autograd.grad(loss(), params)):
                param.data -= 0.1 * grad
        torch.testing.assert_close(weights_of(run), ours, rtol=1e-12, atol=1e-12)


def test_accumulated_turns_make_the_updates_of_whole_batches() -> None:
    def after(size: int, period: int) -> tuple[list[Tensor], int]:
        with training(task__turns=True, backward={"period": period}) as run:
            for batch in batches(size, count=36):
                step(run, batch)
            assert run.task.order == [name for name in ("discriminator", "generator") * 3 for _ in range(period)]
            return weights_of(run), run.train_sched.num_updates

    (whole, updates), (cut, cut_updates) = after(6, 1), after(2, 3)
    assert updates == cut_updates == 6
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=1e-12)


def test_ragged_pieces_of_a_window_are_divided_once() -> None:
    def after(sizes: list[int]) -> list[Tensor]:
        with training(backward={"period": len(sizes)}) as run:
            x = Heaps(count=12).xs.double()
            for piece in x.split(sizes):
                loss_sum = run.model.module.discriminator(piece).square().sum()
                run.updater.accumulate(Loss(loss_sum, len(piece)), optim="discriminator")
            return weights_of(run, "discriminator")

    torch.testing.assert_close(after([1, 4, 7]), after([12]), rtol=1e-12, atol=1e-12)


# -- count of updates
@pytest.mark.parametrize(("n_critic", "generator"), [(1, 6), (2, 3), (3, 2), (5, 1)])
def test_a_step_is_one_update_however_many_have_moved(n_critic: int, generator: int) -> None:
    sched = {"type": "alchemy.sched.Exponential", "gamma": 0.5, "epochs": 1}
    with training(task__n_critic=n_critic, sched=sched) as run:
        for batch in batches(2):
            step(run, batch)
        assert (run.updater.updates, run.train_sched.num_updates) == (6, 6)
        assert run.task.order.count("generator") == generator
        assert run.updater.state_dict()["named"]["generator"][0] == generator
        assert run.optim.get_lr() == [0.1 * 0.5**6] * 2


def test_rates_follow_one_schedule_from_rates_of_their_own() -> None:
    tables = {
        "generator": {**SGD, "lr": 1.0, "params": "generator"},
        "discriminator": {**SGD, "lr": 4.0, "params": "discriminator"},
    }
    sched = {"type": "alchemy.sched.LineWarmup", "num_training_steps": 4}
    with training(optim=tables, sched=sched) as run:
        step(run, batches(12)[0])
        assert run.optim.get_lr() == [0.75, 3.0]


def test_the_end_of_an_epoch_makes_the_updates_that_are_begun() -> None:
    with training(backward={"period": 3}) as run:
        for batch in batches(6):
            step(run, batch)
        assert (run.updater.is_open, run.train_sched.num_updates) == (True, 0)
        run.updater.flush()
        run.updater.flush()
        assert (run.updater.is_open, run.train_sched.num_updates) == (False, 1)
        assert [window[0] for window in run.updater.state_dict()["named"].values()] == [1, 1]


def test_a_step_that_ends_one_window_is_a_boundary_though_another_is_open() -> None:
    with training(task__n_critic=2, backward={"period": 2}) as run:
        one, two = batches(6)
        step(run, one)
        assert run.updater.is_open
        step(run, two)
        assert not run.updater.is_open
        state = run.updater.state_dict()
        assert state["named"] == {"discriminator": [1, 0, 0.0], "generator": [0, 1, 6.0]}
        assert all(name.startswith("generator") for name in state["window"]["grads"])


def test_clipping_is_that_of_each() -> None:
    tables = optims(type="alchemy.optim.SGD", lr=1.0, betas=None, max_grad_norm=1e-3)
    tables = {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}
    with training(optim=tables) as run:
        before = {name: weights_of(run, name) for name in run.optim}
        step(run, batches(12)[0])
        for name in run.optim:
            moved = torch.stack([(a - b).norm() for a, b in zip(before[name], weights_of(run, name))]).norm()
            assert moved == pytest.approx(1e-3, rel=1e-2)
            assert run.optim[name].grad_norm > 1e-3


# -- one loss for all
def test_a_loss_without_a_name_is_for_all_of_them() -> None:
    def after(optim: dict[str, Any]) -> list[Tensor]:
        task, model = {"type": "alchemy.task.DefaultTask"}, {"type": "tests.gan.Blend"}
        with training(task=task, model=model, optim=optim) as run:
            for batch in batches(4):
                step(run, batch)
            assert run.train_sched.num_updates == 3
            return weights_of(run)

    several = {"generator": {**SGD, "params": "generator"}, "discriminator": {**SGD, "params": "discriminator"}}
    torch.testing.assert_close(after(several), after(SGD), rtol=0, atol=0)


def test_where_one_gradient_is_not_finite_none_of_them_moves() -> None:
    with training(backward={"nonfinite": "skip"}) as run:
        start, pair = weights_of(run), run.model.module
        pair.discriminator[0].weight.register_hook(lambda grad: grad * math.inf)
        loss = pair.discriminator(pair.generator(torch.ones(2, 2).double())).sum()
        run.updater.accumulate(Loss(loss, 2))
        result = run.updater.step()
        assert (result.skipped, result.reason) == (True, "the gradient is not finite in update 1")
        torch.testing.assert_close(weights_of(run), start, rtol=0, atol=0)


# -- half precision: one loss scale for all
def test_a_scale_that_moves_spoils_no_window_that_is_open() -> None:
    def after(**precision: Any) -> list[Tensor]:
        with training(model__double=False, backward={"period": 2}, precision=precision) as run:
            for batch in batches(3):
                step(run, batch)
            return weights_of(run)

    plain = after()
    scaled = after(dtype="fp16", scale=8.0, scale_every=1)  # grows with every update of any optimizer
    torch.testing.assert_close(scaled, plain, rtol=1e-6, atol=1e-7)
