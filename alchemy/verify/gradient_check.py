"""Check that the gradient of an update does not depend on how its samples are split into steps and processes."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map_only
from torch.utils.data import Dataset, IterableDataset

from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.data.pipe_chain import assign_ranks, link_of, make_fetcher, seed_chain
from alchemy.errors import AlchemyError, RunFailed
from alchemy.launch.device import alloc1
from alchemy.loop import loader_of, train
from alchemy.loss_observer import Loss, Observer
from alchemy.model import AlchemyModel
from alchemy.optim import AlchemyOptimizer
from alchemy.precision import Precision
from alchemy.runner import AlchemyRunner, AlchemyTrainer, Settings
from alchemy.sched import build_sched
from alchemy.seeds import derive, reseed
from alchemy.verify.gradient_cuts import DOUBLE, SINGLE, CutReport, Found, Gradients, Kind, UpdateCut, plan, pluralize
from alchemy.verify.trial_runs import (
    Job,
    Tell,
    check_finished,
    keep_only_training,
    run_and_describe_error,
    run_here,
    run_jobs,
)

BATCHING = ("batch_size", "batch_sampler", "max_tokens", "max_sentences")  # options that group samples into batches
DRAWS = "the forward pass draws random numbers, which differ between splits: the gradients cannot be compared"


def verify_parallel(
    doc: Document, *, ranks: int = 2, device: int = -1, user_dir: str = "src", tell: Tell = lambda text: None
) -> CutReport:
    """Run the first update of a config with several different splits and compare the gradients."""
    if ranks < 1:
        raise AlchemyError(f"--ranks must be at least 1, got {ranks}", hint="1 tests only a single process")
    tell("the first update, split into steps in one process")
    try:
        kind, found = DOUBLE, _compute_gradients(doc, DOUBLE, ranks, device, user_dir)
    except (RuntimeError, TypeError, ValueError) as error:
        if not _is_dtype_error(error):
            raise _as_alchemy_error(error) from error
        tell(f"retrying in float32, because float64 failed: {str(error).partition(chr(10))[0]}")
        kind, found = SINGLE, _compute_gradients(doc, SINGLE, ranks, device, user_dir)
    if ranks > 1 and not found.unknown:
        tell(f"the same with {ranks} processes")
        found.gradients += _compute_in_processes(doc, kind, ranks, device, user_dir)
    return CutReport.of(kind, found)


def _compute_gradients(doc: Document, kind: Kind, ranks: int, device: int, user_dir: str) -> Found:
    """Compute the gradients of all splits in this process."""
    work = keep_only_training(doc, "alchemy.verify.gradient_check.GradientCuts")
    work["sched"] = {"type": "alchemy.sched.Constant", "num_training_steps": 1}
    work["precision"] = {"type": "alchemy.verify.gradient_check.Exact", "double": kind.double}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if kind.double else before)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found: Found = run_here(work, alloc1(device), user_dir, ranks=ranks)
    finally:
        torch.set_default_dtype(before)
    return found


def _compute_in_processes(
    doc: Document, kind: Kind, ranks: int, device: int, user_dir: str
) -> list[tuple[UpdateCut, Gradients]]:
    """Compute the gradients of the splits across several processes, as seen by rank 0."""
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        probe.close()
        jobs = [
            Job(
                _run_rank,
                Path(name),
                (doc, kind, place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, device, user_dir),
            )
            for rank in range(ranks)
        ]
        check_finished(run_jobs(jobs, at_once=ranks))
        saved = torch.load(Path(name) / "gradients.pt", weights_only=True)
    return [(UpdateCut(*cut), gradients) for cut, gradients in saved]


def _run_rank(folder: str, doc: Document, kind: Kind, place: Mapping[str, str], device: int, user_dir: str) -> str:
    """Compute the gradients in one of the processes; return the reason if it fails."""
    os.environ.update(place)

    def work() -> None:
        found = _compute_gradients(doc, kind, int(place["WORLD_SIZE"]), device, user_dir)
        if place["RANK"] == "0":
            torch.save([(tuple(cut), gradients) for cut, gradients in found.gradients], f"{folder}/gradients.pt")

    return run_and_describe_error(work)


# -- the run
@Precision.register()
class Exact(Precision):
    """Turns off dropout and, with `double`, casts the model and the floating-point tensors of a batch to float64."""

    def __init__(self, *, double: bool = True) -> None:
        super().__init__()
        self.double, self.quiet = double, 0

    def prepare(self, model: AlchemyModel) -> None:
        self.quiet = sum(map(_disable_dropout, model.module.modules()))
        if self.double:
            model.to(torch.float64)
        super().prepare(model)

    def attempt(self, step: Callable[..., Any], batch: object, **kwargs: Any) -> Any:
        return super().attempt(step, tree_map_only(Tensor, _to_double, batch) if self.double else batch, **kwargs)


@AlchemyRunner.register()
class GradientCuts(AlchemyTrainer):
    """Runs the first update repeatedly from the same weights, with a different split each time."""

    def __init__(
        self,
        cfg: MutableMapping[str, Any],
        device_info: dict[str, Any] | None = None,
        *,
        ranks: int,
        **settings: Unpack[Settings],
    ) -> None:
        self.ranks = ranks
        super().__init__(cfg, device_info, **settings)

    def run(self) -> Found:
        self.set_up()
        context = self.context
        for optim in _optims(context):
            optim.max_grad_norm = optim.clip_value = None  # clipping would hide a wrong scale
        for group in context.optim.param_groups:
            # with several optimizers, one would see weights that another has already changed
            group["lr"] = group["initial_lr"] = 0.0
        assert isinstance(context.precision, Exact)
        found = Found(quiet=context.precision.quiet, unknown=_mixes_samples(context.model.module))
        if found.unknown:
            return found
        updater, ranks = context.updater, self.ranks
        updater.observer = seen = _GradientObserver(context, found)
        samples, options, found.unit = self._data(updater.period, ranks)
        found.samples = len(samples)
        weights = {name: value.clone() for name, value in context.model.state_dict().items()}
        for cut in plan(found.samples, found.unit, context.group.size):
            updater.period = cut.steps
            data = {**options, "batch_size": cut.size} if cut.size else options
            context.task.splits["train"] = (_Samples(samples), data)
            found.gradients.append((cut, self._update(seen)))
            context.model.load_state_dict(weights)
        return found

    def _data(self, period: int, ranks: int) -> tuple[list[Any], dict[str, Any], str]:
        """Load the samples of the first update, or enough batches for all processes if pipes create the batches."""
        dataset, options = self.context.task.dataset("train")
        collate = options.get("collate_fn", link_of(dataset).collate)
        kept = {} if collate is None else {"collate_fn": collate}
        size, seed = options.get("batch_size"), derive(self.context.seed, "order", 0)
        batches = not any(options.get(key) for key in BATCHING)
        loader = loader_of(self.context, "train", seed)
        number = -(-max(period, 2 * ranks) // ranks) * ranks if batches else period
        reseed(seed)
        if isinstance(dataset, IterableDataset):
            seed_chain(dataset, seed)
            assign_ranks(dataset, 0, 1)
            samples = list(itertools.islice(dataset, number * (size or 1)))
        else:
            assert loader.index_sampler is not None
            fetch = make_fetcher(dataset)
            samples = [sample for ids in itertools.islice(loader.index_sampler, number) for sample in fetch(ids)]
        unit = "batch" if batches else "sample"
        if len(samples) < 2 * (ranks if batches else 1):
            text = f"an update has {pluralize(len(samples), unit, 'es' if batches else 's')}: there is nothing to split"
            raise AlchemyError(text, section="task.datasets.train", hint="use larger batches or more data")
        return samples[: len(samples) // ranks * ranks] if batches else samples, kept, unit

    def _update(self, seen: _GradientObserver) -> Gradients:
        context, seen.gradients = self.context, {}
        context.stop_request.reason, context.train_sched = None, build_sched(context)
        with self._looping():
            train(context)
        if context.update != 1 or not seen.gradients:
            hint = "the backward handler must perform one update every `period` steps"
            raise AlchemyError(
                f"the steps of one update performed {context.update} updates", section="backward", hint=hint
            )
        return seen.gradients


class _GradientObserver(Observer):
    """Records the gradients of an update, and anything that prevents their comparison."""

    def __init__(self, run: Run, found: Found) -> None:
        self.run, self.found = run, found
        self.gradients: Gradients = {}
        self._before = self._rng_state()

    def _rng_state(self) -> Tensor:
        """Return the random number generator state of the run's device."""
        on_gpu = self.run.device is not None and self.run.device.type == "cuda"
        return torch.cuda.get_rng_state(self.run.device or "cuda") if on_gpu else torch.get_rng_state()

    def micro_batch(self, batch: object) -> contextlib.AbstractContextManager[Any]:
        self._before = self._rng_state()
        return contextlib.nullcontext()

    def loss(self, loss: Loss, optim: str) -> None:
        self.found.means |= loss.is_mean
        if not torch.equal(self._before, self._rng_state()):
            self.found.unknown = DRAWS

    def update(self, optim: AlchemyOptimizer) -> contextlib.AbstractContextManager[Any]:
        own = {id(param) for param in optim.params}
        for name, param in self.run.model.named_parameters():
            if param.grad is not None and id(param) in own:
                self.gradients[name] = param.grad.detach().clone().cpu()
        return contextlib.nullcontext()


def _optims(run: Run) -> Iterator[AlchemyOptimizer]:
    return iter(run.optim.values() if isinstance(run.optim, Mapping) else [run.optim])


class _Samples(Dataset[Any]):
    """An in-memory dataset."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def _mixes_samples(module: nn.Module) -> str:
    """Explain why gradients depend on the split if a module mixes the samples of a batch; otherwise return ""."""
    names = [
        f"{name} ({type(inner).__name__})" for name, inner in module.named_modules() if isinstance(inner, _BatchNorm)
    ]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{', '.join(names[:3])}{more}: the output for a sample depends on the other samples of its step, so the "
        "gradient depends on the split; use GroupNorm or LayerNorm if that matters"
    )


def _disable_dropout(module: nn.Module) -> bool:
    """Turn off dropout in a module, using the attribute names of torch and transformers; return whether it had any."""
    found = False
    for name, value in list(vars(module).items()):
        rate = isinstance(value, float) and value > 0
        if rate and ("drop" in name.lower() or (name == "p" and isinstance(module, _DropoutNd))):
            setattr(module, name, 0.0)
            found = True
    return found


def _to_double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _is_dtype_error(error: BaseException) -> bool:
    """Return whether an error is about mixed dtypes."""
    text = str(error).lower()
    return not isinstance(error, AlchemyError) and any(word in text for word in ("dtype", "double", "float64"))


def _as_alchemy_error(error: BaseException) -> AlchemyError:
    if isinstance(error, AlchemyError):
        return error
    return RunFailed(f"the training step failed: {type(error).__name__}: {error}")
