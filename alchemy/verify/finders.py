"""Find a learning rate and a batch size with short training runs."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Unpack

import numpy as np
import torch
from loguru import logger
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc1
from alchemy.loop import train
from alchemy.loss_observer import Loss, Observer
from alchemy.nn.oom import is_oom
from alchemy.runner import AlchemyRunner, AlchemyTrainer, Settings, build_updater
from alchemy.sched import AlchemyTrainScheduler, build_sched
from alchemy.update import NotFinite
from alchemy.verify.trial_runs import keep_only_training, run_here

MIN_LOSSES = 5  # losses needed for a meaningful mean
MAX_INSPECTED = 1000  # maximum number of samples searched for the largest ones


# -- the learning rate
@dataclass
class Rates:
    """The loss at each learning rate. Individual losses are noisy, so moving averages are shown and compared."""

    rates: list[float] = field(default_factory=list)
    raw: list[float] = field(default_factory=list)
    ended: str = ""

    def add(self, rate: float, loss: float) -> None:
        self.rates.append(rate)
        self.raw.append(loss)

    @property
    def exploded(self) -> bool:
        """Whether the loss exploded relative to the first losses (the best loss may be close to 0)."""
        latest = _mean(self.raw[-MIN_LOSSES:])
        return not math.isfinite(latest) or latest > 4 * abs(_mean(self.raw[:MIN_LOSSES]))

    @property
    def losses(self) -> list[float]:
        """The losses, smoothed with a moving average."""
        return [
            _mean(self.raw[max(0, i - self._half_window) : i + self._half_window + 1]) for i in range(len(self.raw))
        ]

    @property
    def _half_window(self) -> int:
        return max(1, len(self.raw) // 20)

    @property
    def _best(self) -> int | None:
        """The index of the lowest loss, or None if the decrease is not significant."""
        losses = list(itertools.takewhile(math.isfinite, self.losses))
        begin = self.raw[: max(MIN_LOSSES, len(self.raw) // 5)]
        if len(losses) < 2 * MIN_LOSSES:
            return None
        best = min(range(len(losses)), key=losses.__getitem__)
        spread = float(np.std(begin)) / math.sqrt(2 * self._half_window + 1)
        return best if losses[best] < _mean(begin) - 3 * spread - 1e-3 * abs(_mean(begin)) else None

    @property
    def lowest(self) -> float | None:
        """The rate with the lowest loss; higher rates are too large. None if the loss never fell."""
        return None if self._best is None else self.rates[self._best]

    @property
    def steepest(self) -> float | None:
        """The rate at which the loss fell fastest."""
        if self._best is None:
            return None
        losses, reach = self.losses, self._half_window
        # rates are evenly spaced on a logarithmic scale, so differences are slopes
        fall = lambda i: losses[i + reach] - losses[max(0, i - reach)]  # noqa: E731
        return self.rates[min(range(max(1, self._best - reach + 1)), key=fall)]

    def as_data(self) -> dict[str, Any]:
        losses = [loss if math.isfinite(loss) else str(loss) for loss in self.losses]  # JSON has no NaN
        rows = [{"rate": rate, "loss": loss} for rate, loss in zip(self.rates, losses, strict=True)]
        return {"suggestion": self.steepest, "lowest": self.lowest, "ended": self.ended, "rows": rows}


@AlchemyTrainScheduler.register()
class RateSweep(AlchemyTrainScheduler):
    """Multiplies the rate of every group by a constant factor at each update, and records the losses."""

    def __init__(self, *, num_training_steps: int, first: float, last: float) -> None:
        self.first, self.growth = first, (last / first) ** (1 / (num_training_steps - 1))
        self.found, self.losses = Rates(), _Losses()
        self._rate = 0.0
        super().__init__(num_training_steps=num_training_steps)
        # keep the begin-step pipes, which may freeze parameters; evaluations would only cost time
        self.begin_epoch_pipes, self.end_step_pipes, self.end_epoch_pipes = [], [], []

    def lr_at(self, base: float, t: int) -> float:
        leading = self.run.optim.param_groups[0]["initial_lr"]
        return self.first * self.growth**t * (base / leading if leading else 1.0)

    def step_lr(self) -> None:
        if self.num_updates:  # this loss is the result of the previous rate
            self.found.add(self._rate, self.losses.mean)
            if self.found.exploded:
                self.run.stop("the loss exploded")
        self._rate, self.losses.sum, self.losses.count = self.run.optim.get_lr()[0], 0.0, 0.0
        super().step_lr()


class _Losses(Observer):
    """The losses since the last update."""

    sum = count = 0.0

    def loss(self, loss: Loss, optim: str) -> None:
        self.sum += loss.sum.item()
        self.count += float(loss.count)

    @property
    def mean(self) -> float:
        return self.sum / max(self.count, 1e-9)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@AlchemyRunner.register()
class RateFinder(AlchemyTrainer):
    """Trains with a RateSweep and returns its result."""

    def run(self) -> Rates:
        self.set_up()
        context = self.context
        sweep = context.train_sched
        assert isinstance(sweep, RateSweep)
        context.updater.observer, found = sweep.losses, sweep.found
        try:
            with self._looping():
                train(context)
            found.ended = context.stop_request.reason or ""
        except NotFinite as error:
            found.ended = str(error.problem.message)
        return found


def find_rate(
    doc: Document,
    *,
    first: float = 1e-7,
    last: float = 1.0,
    updates: int = 100,
    device: int = -1,
    user_dir: str = "src",
) -> Rates:
    """Train for `updates` updates while the rate grows from `first` to `last`. Writes no files."""
    _validate_sweep(first, last, updates)
    work = keep_only_training(doc, "alchemy.verify.finders.RateFinder")
    work["sched"] = {
        "type": "alchemy.verify.finders.RateSweep",
        "num_training_steps": updates,
        "first": first,
        "last": last,
        "pipes": doc.plain().get("sched", {}).get("pipes", []),
    }
    found: Rates = run_here(work, alloc1(device), user_dir)
    return found


def _validate_sweep(first: float, last: float, updates: int) -> None:
    """Raise an error if the sweep is invalid, before building anything."""
    if not 0 < first < last < math.inf:
        hint = "use rates > 0 with --first below --last, such as --first 1e-7 --last 1"
        raise AlchemyError(f"the rate cannot grow from {first} to {last}", hint=hint)
    if updates < 2:
        raise AlchemyError(f"--updates must be at least 2, got {updates}", hint="100 updates produce a useful curve")


# -- the batch size
@dataclass
class Try:
    """A batch size, whether it fits in memory, and its peak memory if the device reports it."""

    batch_size: int
    fits: bool
    peak: float | None = None  # MiB


@dataclass
class Sizes:
    """All batch sizes that were tried, up to `limit`."""

    limit: int
    why: str
    tries: list[Try] = field(default_factory=list)

    @property
    def best(self) -> int:
        return max((row.batch_size for row in self.tries if row.fits), default=0)

    def as_data(self) -> dict[str, Any]:
        return {"batch_size": self.best, "limit": self.limit, "why": self.why, "tries": [asdict(t) for t in self.tries]}


class _Indexed(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...


class _Largest(Dataset[Any]):
    """The `count` largest samples of a dataset, repeated to form the largest possible batches."""

    def __init__(self, dataset: _Indexed, order: Sequence[int], count: int, length: int) -> None:
        self.dataset, self.order, self.count, self.length = dataset, order, count, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.order[index % self.count % len(self.order)]]


@AlchemyRunner.register()
class BatchFinder(AlchemyTrainer):
    """Trains for a few steps with growing batches until memory runs out, then bisects."""

    def __init__(
        self,
        cfg: MutableMapping[str, Any],
        device_info: dict[str, Any] | None = None,
        *,
        most: int | None,
        **settings: Unpack[Settings],
    ) -> None:
        self.most = most
        super().__init__(cfg, device_info, **settings)

    def run(self) -> Sizes:
        self.set_up()
        self.dataset, self.options = self._data()
        self.order = sort_by_size(self.dataset)
        found = self._limit()
        for size in sizes_to_try(found):
            found.tries.append(self._try(size))
            logger.info("batch_size {}: {}", size, "fits" if found.tries[-1].fits else "out of memory")
            if self.context.stop_request.signal is not None:
                break
        return found

    def _data(self) -> tuple[Any, dict[str, Any]]:
        dataset, options = self.context.task.dataset("train")
        if not options.get("batch_size") or isinstance(dataset, IterableDataset):
            hint = "set the size in the pipe or sampler that creates the batches"
            text = "the batches of 'train' are not created with a batch_size"
            raise AlchemyError(text, section="task.datasets.train", hint=hint)
        drop = ("shuffle", "sampler", "batch_sampler", "num_workers", "prefetch_factor", "persistent_workers", "seed")
        return dataset, {key: value for key, value in options.items() if key not in drop}

    def _limit(self) -> Sizes:
        count = len(self.dataset)
        if self.most is None or count <= self.most:
            return Sizes(count, "the number of samples")
        return Sizes(self.most, "--max")

    def _try(self, size: int) -> Try:
        context = self.context
        steps = max(2, context.updater.period)  # the optimizer state exists from the second step on
        data = _Largest(self.dataset, self.order, size, size * steps)
        context.task.splits["train"] = (data, {**self.options, "batch_size": size})
        context.limits.max_batches, context.stop_request.reason, context.updater = (
            steps,
            None,
            build_updater(context, context.model),
        )
        context.train_sched = build_sched(context)
        cuda = context.device is not None and context.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(context.device)
        fits = self._fits()
        if not fits:  # at this point, the frames that referenced the activations are gone
            context.optim.zero_grad()
            gc.collect()
            if cuda:
                torch.cuda.empty_cache()
        return Try(size, fits, torch.cuda.max_memory_allocated(context.device) / 2**20 if cuda else None)

    def _fits(self) -> bool:
        try:
            with self._looping():
                train(self.context)
        except NotFinite:  # a step with a NaN loss uses the same memory
            return True
        except Exception as error:
            if not any(map(is_oom, _causes(error))):
                raise
            return False
        return True


def sizes_to_try(found: Sizes) -> Iterator[int]:
    """Yield the sizes to try: doubled until one does not fit, then bisected."""
    size = 1
    while size <= found.limit:
        yield size
        if not found.tries[-1].fits:
            break
        if size == found.limit:
            return
        size = min(2 * size, found.limit)
    below, above = found.best, size
    while below and above - below > max(1, below // 32):
        middle = (below + above) // 2
        yield middle
        below, above = (middle, above) if found.tries[-1].fits else (below, middle)


def sort_by_size(dataset: _Indexed) -> list[int]:
    """Return the indices of samples, largest first; a large dataset is sampled at regular intervals."""
    step = max(1, len(dataset) // MAX_INSPECTED)
    indices = range(0, len(dataset), step)
    return sorted(indices, key=lambda i: _volume(dataset[i]), reverse=True)


def _volume(sample: object) -> int:
    """Return the size of a sample: the number of elements in its tensors and lists plus characters in its strings.

    >>> _volume({"ids": [1, 2, 3], "text": "ab", "label": 1})
    6
    """
    if isinstance(sample, Tensor | np.ndarray):
        return int(sample.numel() if isinstance(sample, Tensor) else sample.size)
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(map(_volume, sample.values()))
    return sum(map(_volume, sample)) if isinstance(sample, list | tuple) else 1


def find_batch_size(doc: Document, *, limit: int | None = None, device: int = -1, user_dir: str = "src") -> Sizes:
    """Find the largest batch size whose training step fits in memory, using the largest samples. Writes no files."""
    if device < 0 and limit is None:
        hint = "set a limit with --max N, or choose a GPU with --device"
        raise AlchemyError("on the CPU, the machine would swap before it runs out of memory", hint=hint)
    if limit is not None and limit < 1:
        raise AlchemyError(f"--max must be at least 1, got {limit}")
    work = keep_only_training(doc, "alchemy.verify.finders.BatchFinder")
    work["sched"] = {"type": "alchemy.sched.Constant", "num_training_steps": 10**9}
    if isinstance(work.get("precision"), Mapping):
        work["precision"]["halve_on_oom"] = False
    found: Sizes = run_here(work, alloc1(device), user_dir, most=limit)
    return found


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
