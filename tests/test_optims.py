"""Several optimisers in one task: whose gradients, whose windows, what counts as an update."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import alchemy
from alchemy.checkpoint.files import read
from alchemy.context import Run
from alchemy.errors import AlchemyError, RunFailed
from alchemy.legacy.adapt import build_updater
from alchemy.model import NotFinite
from alchemy.nn.losses import Focal
from alchemy.observe import Loss
from alchemy.optim import Optimizers, build_optimizer
from alchemy.plain import build_model
from alchemy.precision import build_precision
from alchemy.sched import build_sched
from alchemy.task import build_task
from alchemy.verify.equal import compare
from tests.gan import MEAN, SPREAD, TRAININGS, Heaps, changed, config, optims, train
from tests.logs import warned

SGD = {"type": "torch.optim.SGD", "lr": 0.1}
STOPS = {"type": "tests.toy.SignalAt"}


@contextmanager
def training(**changes: Any) -> Iterator[Any]:
    """A GAN in float64 under SGD, ready for steps, with `changes` of its config."""
    cfg: dict[str, Any] = {
        "seed": 1,
        "task": {"type": "tests.gan.Adversarial"},
        "model": {"type": "tests.gan.Gan", "double": True},
        "optim": {name: {**SGD, "params": f"{name}.*"} for name in ("generator", "discriminator")},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 1},
    }
    with Run(changed(cfg, **changes)) as run:
        torch.manual_seed(0)
        run.precision = build_precision(run)
        run.task, run.model = build_task(run), build_model(run)
        run.optim = build_optimizer(run)
        run.updater = build_updater(run, run.model)
        run.train_sched = build_sched(run)
        yield run


def batches(size: int, count: int = 12) -> list[dict[str, Tensor]]:
    data = Heaps(count=count)
    return [{"x": x, "z": z} for x, z in zip(data.xs.split(size), data.zs.split(size))]


def step(run: Run, batch: dict[str, Tensor]) -> None:
    """A step as the loop makes it."""
    run.train_sched.begin_train_step(batch)
    with run.updater.micro_batch(batch):
        run.task.train_step(batch, run.updater)
    if run.updater.is_full:
        run.updater.step()


def weights_of(run: Run, name: str = "") -> list[Tensor]:
    return [p.detach().clone() for known, p in run.model.named_parameters() if known.startswith(name)]


def names_of(run: Run, params: list[nn.Parameter]) -> list[str]:
    known = {id(param): name for name, param in run.model.named_parameters()}
    return sorted(known[id(param)] for param in params)


# -- the toy learns
def test_the_toy_gan_learns_the_mean_and_the_spread_of_the_data() -> None:
    sched = {"type": "alchemy.sched.LineWarmup", "num_training_steps": 400}
    (result,) = alchemy.run([config(sched=sched, ema={"decay": 0.98})], device=[-1], raise_errors=True)
    assert result.ret["mean"] == pytest.approx(MEAN, abs=0.3)
    assert result.ret["spread"] == pytest.approx(SPREAD, abs=0.3)


# -- whose parameters
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


def test_a_table_is_that_of_its_own_optimiser() -> None:
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
            r"\[optim.generator\] params = 'genrator' names no parameter of Gan; did you mean 'generator'",
        ),
        (
            {"generator": {"params": ["generator", "zzz"]}},
            r"params = 'zzz' names no parameter of Gan; it has generator, discriminator",
        ),
        ({"generator": {"params": ""}}, r"params = '' names no parameter"),
        ({"generator": {"params": []}}, r"params = \[\] names no parameter"),
        (
            {"generator": {"params": "*.weight"}},
            r"in \[optim.generator\] and in \[optim.discriminator\]: discriminator.0.weight, discriminator.2.weight",
        ),
        (
            {"generator": {"params": None}},
            r'\[optim.generator\] it does not say which parameters it takes; .*params = "generator\.\*"',
        ),
        ({"generator": {"type": None}}, r"\[optim.generator\] has no 'type'"),
        (
            {"generator": {"momentun": 0.9}},
            r"\[optim.generator\] torch.optim.SGD takes no 'momentun'; did you mean 'momentum'",
        ),
    ],
)
def test_errors_name_the_optimiser(changes: dict[str, Any], message: str) -> None:
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


def test_there_is_no_single_optimiser_to_ask_for() -> None:
    with training() as run:
        with pytest.raises(
            AlchemyError, match=r"several optimisers: generator, discriminator; .*\['generator'\].optimizer"
        ):
            run.optim.optimizer  # noqa: B018
        with pytest.raises(AlchemyError, match="several optimisers"):
            run.optim.optimizer = None
        assert getattr(run.optim, "optimizer", None) is None
        with pytest.raises(AlchemyError, match="no optimiser 'generater'; did you mean 'generator'"):
            run.optim["generater"]


# -- whose gradients
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
    with training() as run:  # the same by hand
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


# -- what counts as an update
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


# -- losses that go wrong
@pytest.mark.parametrize("nonfinite", ["stop", "skip"])
def test_a_loss_that_is_not_finite_holds_its_own_optimiser_back(nonfinite: str) -> None:
    with training(backward={"nonfinite": nonfinite}) as run:
        updater, pair, start = run.updater, run.model.module, weights_of(run)
        loss = pair.discriminator(torch.ones(2, 1).double()).sum() * math.nan
        if nonfinite == "stop":
            with pytest.raises(NotFinite, match="the loss of 'discriminator' is not finite in update 1"):
                updater.accumulate(Loss(loss, 2), optim="discriminator")
        else:
            updater.accumulate(Loss(loss, 2), optim="discriminator")
            updater.accumulate(Loss(pair.generator(torch.ones(2, 2).double()).sum(), 2), optim="generator")
            updater.flush()
            assert (updater.skipped, updater.updates) == (1, 1)
            assert not torch.equal(weights_of(run, "generator")[0], start[0])
        torch.testing.assert_close(weights_of(run, "discriminator"), start[4:], rtol=0, atol=0)


def spoilt(*players: str) -> dict[str, Any]:
    return config(model={"type": "tests.gan.Spoilt", "players": list(players)}, backward={"nonfinite": "skip"})


def test_a_training_in_which_one_of_them_never_moves_still_ends_well() -> None:
    (result,) = alchemy.run([spoilt("discriminator")], device=[-1], raise_errors=True)
    assert result.status == "finished"


def test_a_training_in_which_none_of_them_ever_moves_fails() -> None:
    with pytest.raises(RunFailed, match="all 20 updates were left out, none was finite"):
        alchemy.run([spoilt("discriminator", "generator")], device=[-1], raise_errors=True)


def test_a_loss_that_does_not_reach_its_parameters_is_refused() -> None:
    with training() as run:
        pair = run.model.module
        fake = pair.generator(torch.ones(2, 2).double()).detach()
        with pytest.raises(
            AlchemyError, match="loss of 'generator' does not depend on its parameters; is something detached"
        ):
            run.updater.accumulate(Loss(pair.discriminator(fake).sum(), 2), optim="generator")


def test_a_frozen_optimiser_waits() -> None:
    with training() as run:
        run.model.set_requires_grad(False, "generator")
        before = weights_of(run, "generator")
        step(run, batches(12)[0])
        torch.testing.assert_close(weights_of(run, "generator"), before, rtol=0, atol=0)
        assert run.train_sched.num_updates == 1


def test_names_that_nobody_has_are_refused() -> None:
    with training() as run:
        x = next(run.model.parameters()).sum()
        with pytest.raises(AlchemyError, match="there is no optimiser 'generater'; did you mean 'generator'"):
            run.updater.accumulate(Loss(x, 1), optim="generater")
    with training(optim=SGD) as run:
        x = next(run.model.parameters()).sum()
        with pytest.raises(
            AlchemyError, match=r"for the optimiser 'generator', and there is only one; .*\[optim.generator\]"
        ):
            run.updater.accumulate(Loss(x, 1), optim="generator")


@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize(("first", "second"), [("generator", ""), ("", "generator")])
def test_losses_with_and_without_a_name_do_not_mix(first: str, second: str, same_batch: bool) -> None:
    with training(backward={"period": 2}) as run:
        updater, weight = run.updater, next(run.model.parameters())
        updater.accumulate(Loss(weight.sum(), 1), optim=first)
        if not same_batch:
            updater.end_micro_batch()
        with pytest.raises(AlchemyError, match="all optimisers"):
            updater.accumulate(Loss(weight.sum(), 1), optim=second)


def test_halves_of_a_step_with_named_losses_are_refused() -> None:
    with training() as run, pytest.raises(RunFailed, match="not halved"), run.updater.joined():
        step(run, batches(12)[0])


def test_a_handler_of_a_project_is_given_the_name() -> None:
    with training(backward={"type": "tests.gan.NotesNames"}) as run:
        step(run, batches(12)[0])
        assert run.model.backward.seen == ["discriminator", "generator"]


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


# -- half precision: one scale for all
def test_a_scale_that_moves_spoils_no_window_that_is_open() -> None:
    def after(**precision: Any) -> list[Tensor]:
        with training(model__double=False, backward={"period": 2}, precision=precision) as run:
            for batch in batches(3):
                step(run, batch)
            return weights_of(run)

    plain = after()
    scaled = after(dtype="fp16", scale=8.0, scale_every=1)  # grows with every update of either
    torch.testing.assert_close(scaled, plain, rtol=1e-6, atol=1e-7)


# -- a whole run: what it logs, what it keeps
def rows_of(record: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (record / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "values" in row]


def test_each_is_logged_by_its_name(tmp_path: Path) -> None:
    (result,) = alchemy.run([config(tmp_path, task__n_critic=2, ema={})], device=[-1], raise_errors=True)
    values: dict[str, float] = {}
    for row in rows_of(Path(result.record_dir)):
        values |= row["values"]
    assert (values["train/updates_discriminator"], values["train/updates_generator"]) == (10, 5)
    assert {
        f"train/{what}_{name}" for what in ("loss", "lr", "grad_norm") for name in ("generator", "discriminator")
    } <= values.keys()


@pytest.mark.parametrize(
    "changes",
    [{}, {"task__n_critic": 3}, {"backward": {"period": 2}, "task__n_critic": 2}, {"ema": {"decay": 0.9}}],
    ids=["plain", "n_critic", "open windows", "ema"],
)
def test_a_run_that_was_stopped_and_resumed_ends_at_the_same_weights(changes: dict[str, Any], tmp_path: Path) -> None:
    def run(folder: str, pipes: list[dict[str, Any]], **options: Any) -> Any:
        cfg = config(tmp_path / folder, sched__pipes=pipes, **changes)
        (result,) = alchemy.run([cfg], device=[-1], raise_errors=True, **options)
        return result

    never = {**STOPS, "step": -5}
    whole = run("whole", [never])
    stopped = run("cut", [{**STOPS, "step": 4}])
    resumed = run("cut", [never], resume_from=stopped.record_dir)
    assert stopped.status == "stopped" and resumed.status == "finished"
    found = compare(Path(whole.record_dir), Path(resumed.record_dir))
    assert found.equal, str(found)
    assert (found.updates, found.tensors > 30) == (10, True)
    files = read(Path(resumed.record_dir) / "state" / "last")
    assert any("generator" in name for name in files["optim.safetensors"])


# -- several processes
@pytest.mark.dist
def test_two_processes_make_the_updates_of_one(tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tests.gan"]
    root = Path(__file__).parents[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    done = subprocess.run([*start, str(together)], cwd=root, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    train(alone)
    for name in TRAININGS:
        one = torch.load(alone / f"{name}.0", weights_only=True)
        for rank in range(2):
            torch.testing.assert_close(
                torch.load(together / f"{name}.{rank}", weights_only=True), one, rtol=1e-9, atol=1e-12
            )
