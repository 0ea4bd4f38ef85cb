"""Precision: half-precision steps, loss scale, recomputation, compilation, and out-of-memory errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from alchemy.context import Run
from alchemy.errors import AlchemyError, RunFailed
from alchemy.legacy.adapt import build_updater
from alchemy.model import AlchemyModel
from alchemy.nn import losses
from alchemy.optim import build_optimizer
from alchemy.precision import build_precision
from alchemy.sched import build_sched


class Net(AlchemyModel):
    """Two layers and a dropout; runs out of memory above `limit`."""

    def __init__(self, module: nn.Module | None = None, limit: int = 10**9, where: str = "forward") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = module or nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 1))
        self.limit, self.where = limit, where
        self.dtypes: list[torch.dtype] = []

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        y = self.model(batch["x"])
        self.dtypes.append(y.dtype)
        if len(batch["x"]) > self.limit:
            if self.where == "forward":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            y = Exploding.apply(y)
        loss_sum, count = (y.double() - batch["y"]).square().sum(), len(batch["y"])
        loss = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
        return {"loss": loss, "loss_sum": loss_sum.detach(), "count": count}


class Exploding(torch.autograd.Function):
    """Runs out of memory in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


@contextlib.contextmanager
def training(model: Any = None, period: int = 1, **precision: Any) -> Iterator[Any]:
    """Build a run with everything a step needs, without data."""
    cfg = {
        "seed": 1,
        "optim": {"type": "torch.optim.SGD", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "num_training_steps": 9},
        "backward": {"period": period},
        "precision": precision,
    }
    with Run(cfg) as run:
        run.device = torch.device("cpu")
        run.model = Net() if model is None else model()
        run.optim, run.updater = build_optimizer(run), build_updater(run, run.model)
        run.train_sched = build_sched(run)
        run.precision = build_precision(run)
        run.precision.prepare(run.model)
        yield run


def batch(count: int = 8, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(count, 3, generator=generator), "y": torch.randn(count, 1, generator=generator)}


def step(run: Any, rows: Any) -> Any:
    forward = lambda rows: run.model.forward(rows, needs_loss=True, requires_grad=True)  # noqa: E731
    with run.updater.micro_batch(rows):
        answer = run.precision.attempt(forward, rows)
    if run.updater.is_full:  # halves of one micro-batch
        run.updater.step()
    return answer[1] if isinstance(answer, tuple) else answer


def weights(run: Run) -> list[torch.Tensor]:
    return [param.detach().clone() for param in run.model.parameters()]


# -- half precision
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize("dtype", KINDS)
def test_a_step_computes_in_the_type_that_is_asked_for_and_weights_stay_float32(dtype: str) -> None:
    with training(dtype=dtype, scale=1024.0) as run:
        before = weights(run)
        step(run, batch())
        assert run.model.dtypes == [KINDS[dtype]]
        assert not any(torch.equal(a, b) for a, b in zip(before, weights(run), strict=True))
        assert {param.dtype for param in run.model.parameters()} == {torch.float32}


def test_half_precision_is_close_to_full_precision() -> None:
    results = []
    for dtype in ("fp32", "bf16", "fp16"):
        with training(dtype=dtype, scale=1024.0) as run:
            for seed in range(3):
                torch.manual_seed(seed)
                step(run, batch(seed=seed))
            results.append(weights(run))
    for half in results[1:]:
        for a, b in zip(results[0], half, strict=True):
            assert torch.allclose(a, b, atol=0.03)


def test_a_backward_pass_is_not_cast_again() -> None:
    seen = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append(torch.is_autocast_enabled("cpu"))
            return grad

    with training(dtype="bf16") as run:
        x = torch.ones(2, requires_grad=True)
        with run.precision.autocast(), run.precision.gradients():
            Watch.apply(x).sum().backward()
    assert seen == [False]


@pytest.mark.parametrize("kind", ["CrossEntropy", "BCE", "MSE", "Focal"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_losses_are_summed_in_float32(kind: str, dtype: str) -> None:
    loss = getattr(losses, kind)()
    with training(dtype=dtype) as run, run.precision.autocast():
        logits = nn.Linear(3, 2)(torch.ones(4, 3))
        target = torch.zeros(4, dtype=torch.long) if kind in ("CrossEntropy", "Focal") else torch.zeros(4, 2)
        assert logits.dtype is KINDS[dtype]
        assert loss(logits, target)[0].dtype is torch.float32


def test_an_unknown_dtype_is_told() -> None:
    with pytest.raises(AlchemyError, match=r"dtype must be one of .*did you mean 'fp16'"), training(dtype="f16"):
        pass


def test_weights_in_float16_are_refused() -> None:
    half = lambda: Net(nn.Linear(3, 1).half())  # noqa: E731
    with pytest.raises(AlchemyError, match="weights are float16"), training(half, dtype="fp16"):
        pass


# -- the loss scale
def test_the_scale_leaves_gradients_as_they_are() -> None:
    with training(dtype="fp16") as run:
        param = run.optim.params[0]
        run.precision.scale((param * 3).sum()).backward()
        assert torch.equal(param.grad, torch.full_like(param, 3 * 65536.0))
        run.precision.unscale(run.optim)
        assert torch.equal(param.grad, torch.full_like(param, 3.0))


def test_an_overflow_skips_the_update_and_halves_the_scale() -> None:
    with training(dtype="fp16", scale_every=2) as run:
        before = weights(run)
        for value, scale, done in ((float("inf"), 32768.0, False), (1.0, 32768.0, True), (1.0, 65536.0, True)):
            for param in run.optim.params:
                param.grad = torch.full_like(param, value)
            run.precision.unscale(run.optim)
            assert run.precision.accepts(run.optim) is done
            if done:
                run.optim.step()
            assert run.precision.loss_scale.value == scale
            assert all(torch.equal(a, b) for a, b in zip(before, weights(run), strict=True)) is not done
            before = weights(run)


def test_a_window_of_another_optimizer_goes_on_with_one_scale() -> None:
    with training(dtype="fp16", scale=64.0) as run:
        first, second = run.optim.params[:2]
        part = SimpleNamespace(params=[first], step=lambda: None)
        first.grad, second.grad = torch.full_like(first, float("inf")), torch.full_like(second, 64.0)
        run.precision.unscale(part)
        assert not run.precision.accepts(part)
        run.precision.scale(second.sum()).backward()  # the second window, now with half the scale
        run.precision.unscale(run.optim)
        assert torch.equal(second.grad, torch.full_like(second, 2.0))


def test_a_loss_that_never_gets_finite_ends_the_run() -> None:
    with training(dtype="fp16", scale=2e-4) as run:
        run.optim.params[0].grad = torch.full_like(run.optim.params[0], float("nan"))
        with pytest.raises(RunFailed, match="overflow in float16 even with a loss scale"):
            for _ in range(2):
                run.precision.unscale(run.optim)
                run.precision.accepts(run.optim)


def test_the_scale_survives_a_resume() -> None:
    with training(dtype="fp16", scale_every=5, scale=1024.0) as run:
        for seed in range(3):
            step(run, batch(seed=seed))
        state = run.precision.state_dict()
    with training(dtype="fp16", scale_every=5, scale=8.0) as run:
        run.precision.load_state_dict(state)
        assert run.precision.state_dict() == state == {"scale": 1024.0, "good": 3, "skipped": 0}
    with training(dtype="bf16") as run:
        assert run.precision.state_dict() == {}


# -- recomputation
class Counting(nn.Module):
    """Count forward passes; contains a dropout and a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.inner(x)


def stack() -> Net:
    torch.manual_seed(0)
    return Net(nn.Sequential(Counting(), Counting(), nn.Linear(3, 1)))


@pytest.mark.parametrize("pattern", ["Counting", "[01]", "?"])
def test_recomputed_modules_run_twice_and_nothing_else_changes(pattern: str) -> None:
    results = []
    for patterns in ([], [pattern]):
        with training(stack, recompute=patterns) as run:
            torch.manual_seed(3)
            step(run, batch())
            run.model.eval()
            with torch.no_grad():
                run.model.module(batch()["x"])
            calls = [module.calls for module in run.model.module[:2]]
            results.append((calls, dict(run.model.module.state_dict())))
    assert results[0][0] == [2, 2]
    assert results[1][0] == [3, 3]
    for name, value in results[0][1].items():  # weights and running statistics
        assert torch.equal(value, results[1][1][name]), name


def test_only_the_outermost_module_recomputes() -> None:
    with training(stack, recompute=["Counting", "inner"]) as run:
        step(run, batch())
        assert "forward" in vars(run.model.module[0])
        assert "forward" not in vars(run.model.module[0].inner)


def test_a_pattern_without_a_module_is_told() -> None:
    told = pytest.raises(AlchemyError, match="no module matches 'Countin'; did you mean 'Counting'")
    with told, training(stack, recompute=["Countin"]):
        pass


# -- compilation
def test_compiled_with_the_backend_that_is_asked_for() -> None:
    with training(compile={"backend": "eager"}) as run:
        step(run, batch())
        assert run.model.module._compiled_call_impl is not None
        assert all(not name.startswith("_orig_mod") for name in run.model.state_dict())


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_recomputed_and_compiled() -> None:
    results = []
    settings: Any
    for settings in ({}, {"compile": {"backend": "eager"}, "recompute": ["3"]}):
        with training(**settings) as run:
            torch.manual_seed(0)
            step(run, batch())
            results.append(weights(run))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # warnings of torch during compilation
def test_compiled_for_real() -> None:
    results = []
    for compiled in (True, False):
        torch.manual_seed(0)
        module = nn.Linear(3, 1)
        with training(lambda: Net(module), compile=compiled) as run:  # noqa: B023
            step(run, batch())
            results.append(weights(run))
    assert all(torch.allclose(a, b) for a, b in zip(*results, strict=True))


# -- anomaly
def test_anomaly_mode_lasts_as_long_as_the_run() -> None:
    with training(anomaly=True):
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


# -- out of memory
def accumulated(limit: int, where: str, period: int, sizes: list[int], halve: bool = True) -> tuple[Any, Run]:
    """Return the weights after windows in double precision, if batches above `limit` do not fit."""
    torch.manual_seed(0)
    module = nn.Linear(3, 1).double()
    with training(lambda: Net(module, limit, where), period, halve_on_oom=halve) as run:
        outputs = [step(run, double(batch(size, seed))) for seed, size in enumerate(sizes)]
        return (weights(run), [float(row["loss"]) for row in outputs], run.model.backward.updates), run


def double(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: value.double() for name, value in rows.items()}


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(("period", "sizes"), [(1, [8, 3]), (2, [3, 8]), (2, [8, 7, 2, 8]), (3, [8, 1, 5])])
def test_halves_give_the_same_gradient(where: str, period: int, sizes: list[int]) -> None:
    (whole, losses, updates), _ = accumulated(10**9, where, period, sizes)
    (cut, cut_losses, cut_updates), _ = accumulated(2, where, period, sizes)
    assert updates == cut_updates == len(sizes) // period
    assert cut_losses == pytest.approx(losses, abs=1e-12)
    for a, b in zip(whole, cut, strict=True):
        assert (a - b).abs().max() < 1e-12


def test_a_batch_that_does_not_fit_is_explained() -> None:
    with pytest.raises(RunFailed, match=r"out of memory on a batch of \{x: tensor float64\[8, 3\].*lower batch_size"):
        accumulated(4, "forward", 1, [8], halve=False)


def test_a_single_sample_that_does_not_fit_is_explained() -> None:
    with pytest.raises(RunFailed, match=r"float64\[1, 3\].*not split: one sample"):
        accumulated(0, "forward", 1, [4])


def test_memory_that_lacks_in_the_update_is_no_reason_to_halve() -> None:
    with training(halve_on_oom=True) as run:

        def no_room() -> None:
            raise torch.OutOfMemoryError("no room for the state")

        run.optim._optimizer.step = no_room
        with pytest.raises(RunFailed, match="not split: part of the update was already made"):
            step(run, batch())


def test_an_evaluation_is_never_halved() -> None:
    told = pytest.raises(RunFailed, match=r"out of memory on a batch of .*; lower batch_size")
    with training(lambda: Net(limit=2), halve_on_oom=True) as run, torch.no_grad(), told:
        run.precision.attempt(run.model.forward, batch(), needs_loss=True, requires_grad=False)


def test_other_errors_are_left_alone() -> None:
    with training(halve_on_oom=True) as run, pytest.raises(RuntimeError, match="mat1 and mat2"):
        step(run, {"x": torch.zeros(2, 9), "y": torch.zeros(2, 1)})
