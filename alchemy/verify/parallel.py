"""Whether the gradient of an update depends on how its samples are cut into steps and over processes."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only
from torch.utils.data import Dataset, IterableDataset

from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.data.chain import seed_chain, share_out
from alchemy.errors import AlchemyError, RunFailed
from alchemy.launch.device import alloc1
from alchemy.launch.signals import Interrupted
from alchemy.loop import loader_of, train
from alchemy.observe import Loss, Observer
from alchemy.precision import Precision
from alchemy.runner import AlchemyRunner, AlchemyTrainer, run_task
from alchemy.sched import build_sched
from alchemy.seeds import derive, reseed
from alchemy.verify.trial import Ended, Job, Tell, ended, finished, go, only_training

ONE_BY_ONE = 16  # samples up to which each of them is made a step
BATCHING = ("batch_size", "batch_sampler", "max_tokens", "max_sentences")  # who of them makes batches of samples
MEANS = (
    "this model gives mean losses, without a count: each step of an update weighs the same, so the gradient is "
    "only approximate where steps differ in size; return a sum and its count for the exact one"
)
DRAWS = "the forward pass draws random numbers, others for another cut: the gradients cannot be compared"

Gradients = dict[str, Tensor]


class Kind(NamedTuple):
    """In which numbers is computed, how near gradients must come, and below which share they are taken for zero."""

    double: bool
    tolerance: float
    floor: float

    def __str__(self) -> str:
        return "float64" if self.double else "float32: this model cannot be cast to float64"


DOUBLE, SINGLE = Kind(True, 1e-6, 1e-6), Kind(False, 1e-3, 1e-2)


class Cut(NamedTuple):
    """One way to take the samples: how many at a time, in how many steps, by how many processes."""

    size: int | None  # None: the batches are made by the pipes
    steps: int
    ranks: int

    def __str__(self) -> str:
        return f"{_several(self.ranks, 'process', 'es')}, {_several(self.steps, 'step')}"


@dataclass
class Found:
    """The gradients of each cut, as a run of `Cuts` gives them back."""

    samples: int = 0
    unit: str = "sample"
    quiet: int = 0  # modules whose dropout was turned off
    means: bool = False
    unknown: str = ""  # why the gradients cannot be compared
    gradients: list[tuple[Cut, Gradients]] = field(default_factory=list)


@dataclass
class Row:
    """How far the gradient of a cut is from the first one's, at the parameter where it is farthest."""

    cut: str
    difference: float
    parameter: str


@dataclass
class Report:
    """What `verify parallel` found."""

    head: str
    tolerance: float
    reference: str
    rows: list[Row]
    notes: list[str]
    unknown: str = ""  # why nothing can be said

    @property
    def equal(self) -> bool | None:
        return None if self.unknown else all(row.difference <= self.tolerance for row in self.rows)

    def plain(self) -> dict[str, Any]:
        rows = [vars(row) for row in self.rows]
        told = {"equal": self.equal, "tolerance": self.tolerance, "what": self.head, "reference": self.reference}
        return told | {"reason": self.unknown, "cuts": rows, "notes": self.notes}

    def __str__(self) -> str:
        if self.unknown:
            return "\n".join([*self.notes, f"not known: {self.unknown}"])
        width = max(map(len, [self.reference, *(row.cut for row in self.rows)]))
        rows = [f"{row.cut:<{width}}  {row.difference:.1e} in {row.parameter}" for row in self.rows]
        lines = [self.head, f"{self.reference:<{width}}  what the others are compared with", *rows, *self.notes]
        return "\n".join([*lines, self._verdict()])

    def _verdict(self) -> str:
        if self.equal:
            return f"equal: no gradient differs by more than {self.tolerance:g} of its size"
        worst = max(self.rows, key=lambda row: row.difference)
        text = f"the gradient of {worst.parameter} differs by {worst.difference:.2g} times its size"
        return f"not equal: with {worst.cut} {text}"


def check(
    doc: Document, *, ranks: int = 2, device: int = -1, user_dir: str = "src", tell: Tell = lambda text: None
) -> Report:
    """Makes the first update of a config in several ways and compares their gradients."""
    if ranks < 1:
        raise AlchemyError(f"--ranks is {ranks}", hint="give 1 or more; 1 leaves the processes out")
    tell("the first update, cut into steps in one process")
    try:
        kind, found = DOUBLE, _cuts(doc, DOUBLE, ranks, device, user_dir)
    except (RuntimeError, TypeError, ValueError) as error:
        if not _is_of_types(error):
            raise _failed(error) from error
        tell(f"again in float32, since float64 fails: {str(error).partition(chr(10))[0]}")
        kind, found = SINGLE, _cuts(doc, SINGLE, ranks, device, user_dir)
    if ranks > 1 and not found.unknown:
        tell(f"the same over {ranks} processes")
        found.gradients += _over(doc, kind, ranks, device, user_dir)
    return _report(kind, found)


def _report(kind: Kind, found: Found) -> Report:
    if found.unknown:
        return Report(str(kind), kind.tolerance, "", [], [], found.unknown)
    (first, reference), *others = found.gradients
    rows = [Row(str(cut), *farthest(reference, gradients, kind.floor)) for cut, gradients in others]
    batches = f"{_several(found.samples, 'batch', 'es')} as the pipes make them"
    head = [batches if found.unit == "batch" else _several(found.samples, "sample"), str(kind)]
    head += [f"dropout off in {_several(found.quiet, 'module')}"] if found.quiet else []
    return Report(", ".join(head), kind.tolerance, str(first), rows, [MEANS] if found.means else [])


def farthest(one: Gradients, other: Gradients, floor: float) -> tuple[float, str]:
    """The largest difference, as a share of the gradient of that parameter, and its name.

    Of parameters whose gradient is next to nothing beside the others, only rounding would be seen: `floor` is the
    share of the largest gradient below which they do not get smaller.
    """
    largest = max((float(grad.abs().max()) for grad in one.values()), default=0.0)
    found = (0.0, next(iter(one), ""))
    for name in {**one, **other}:
        a, b = (gradients.get(name, torch.zeros(())) for gradients in (one, other))
        scale = max(float(a.abs().max()), float(b.abs().max()), floor * largest)
        if scale > 0:
            found = max(found, (float((a - b).abs().max()) / scale, name))
    return found


def _cuts(doc: Document, kind: Kind, ranks: int, device: int, user_dir: str) -> Found:
    """The gradients of all cuts, by a run in this process."""
    work = only_training(doc, "alchemy.verify.parallel.Cuts")
    work["sched"] = {"type": "alchemy.sched.Constant", "num_training_steps": 1}
    work["precision"] = {"type": "alchemy.verify.parallel.Exact", "double": kind.double}
    more = {"no_file": True, "user_dir": user_dir, "desc": "", "debug": False, "cut_for": ranks}
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if kind.double else before)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = run_task(work, alloc1(device), raise_errors=True, **more)
    finally:
        torch.set_default_dtype(before)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return result.ret


def _over(doc: Document, kind: Kind, ranks: int, device: int, user_dir: str) -> list[tuple[Cut, Gradients]]:
    """The gradients of the cuts over several processes, as the first of them sees them."""
    with tempfile.TemporaryDirectory(prefix="alchemy-verify-") as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
        probe.close()
        jobs = [
            Job(_share, Path(name), (doc, kind, place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, device, user_dir))
            for rank in range(ranks)
        ]
        finished(go(jobs, at_once=ranks))
        saved = torch.load(Path(name) / "gradients.pt", weights_only=True)
    return [(Cut(*cut), gradients) for cut, gradients in saved]


def _share(folder: str, doc: Document, kind: Kind, place: Mapping[str, str], device: int, user_dir: str) -> Ended:
    """What each of the processes does."""
    os.environ.update(place)

    def work() -> None:
        found = _cuts(doc, kind, int(place["WORLD_SIZE"]), device, user_dir)
        if place["RANK"] == "0":
            torch.save([(tuple(cut), gradients) for cut, gradients in found.gradients], f"{folder}/gradients.pt")

    return ended(work)


# -- the run
@Precision.register()
class Exact(Precision):
    """Turns dropout off, and with `double` casts the model and the numbers of a batch to float64."""

    def __init__(self, *, double: bool = True) -> None:
        super().__init__()
        self.double, self.quiet = double, 0

    def prepare(self, model: Any) -> None:
        self.quiet = sum(map(without_dropout, model.module.modules()))
        if self.double:
            model.to(torch.float64)
        super().prepare(model)

    def attempt(self, step: Callable[..., Any], batch: Any, **kwargs: Any) -> Any:
        return super().attempt(step, tree_map_only(Tensor, _doubled, batch) if self.double else batch, **kwargs)


@AlchemyRunner.register()
class Cuts(AlchemyTrainer):
    """Makes the first update of a training again and again from the same weights, each time cut in another way."""

    def run(self) -> Found:
        self.set_up()
        context = self.context
        for optim in _optims(context):
            optim.max_grad_norm = optim.clip_value = None  # they would hide a wrong size
        for group in context.optim.param_groups:
            # of several optimisers, one would see what another has moved: in each step, or only after all of them
            group["lr"] = group["initial_lr"] = 0.0
        found = Found(quiet=getattr(context.precision, "quiet", 0), unknown=mixes_samples(context.model.module))
        if found.unknown:
            return found
        updater, ranks = context.updater, context.get_global("cut_for")
        updater.observer = seen = Watch(context, found)
        samples, options, found.unit = self._data(updater.period, ranks)
        found.samples = len(samples)
        weights = {name: value.clone() for name, value in context.model.state_dict().items()}
        for cut in plan(found.samples, found.unit, context.group.size):
            updater.period = cut.steps
            data = {**options, "batch_size": cut.size} if cut.size else options
            context.task.splits["train"] = (Samples(samples), data)
            found.gradients.append((cut, self._update(seen)))
            context.model.load_state_dict(weights)
        return found

    def _data(self, period: int, ranks: int) -> tuple[list[Any], dict[str, Any], str]:
        """The samples of the first update, or where pipes make the batches, enough of these to share out."""
        dataset, options = self.context.task.dataset("train")
        collate = options.get("collate_fn", getattr(dataset, "collate", None))
        kept = {} if collate is None else {"collate_fn": collate}
        size, seed = options.get("batch_size"), derive(self.context.seed, "order", 0)
        batches = not any(options.get(key) for key in BATCHING)
        loader = loader_of(self.context, "train", seed)
        number = -(-max(period, 2 * ranks) // ranks) * ranks if batches else period
        reseed(seed)
        if isinstance(dataset, IterableDataset):
            seed_chain(dataset, seed)
            share_out(dataset, 0, 1)
            samples = list(itertools.islice(dataset, number * (size or 1)))
        else:
            assert loader.deal is not None
            fetch = getattr(dataset, "__getitems__", lambda ids: [dataset[index] for index in ids])
            samples = [sample for ids in itertools.islice(loader.deal, number) for sample in fetch(ids)]
        unit = "batch" if batches else "sample"
        if len(samples) < 2 * (ranks if batches else 1):
            text = f"an update has {_several(len(samples), unit, 'es' if batches else 's')}: there is nothing to cut"
            raise AlchemyError(text, section="task.datasets.train", hint="give it larger batches, or more data")
        return samples[: len(samples) // ranks * ranks] if batches else samples, kept, unit

    def _update(self, seen: Watch) -> Gradients:
        context, seen.gradients = self.context, {}
        context.stopping, context.train_sched = None, build_sched(context)
        with self._looping():
            train(context)
        if context.update != 1 or not seen.gradients:
            hint = "its backward handler must make one every `period` steps"
            raise AlchemyError(f"{context.update} updates were made of the steps of one", section="backward", hint=hint)
        return seen.gradients


class Watch(Observer):
    """Keeps the gradients of an update, and notes what makes them incomparable."""

    def __init__(self, run: Run, found: Found) -> None:
        self.run, self.found = run, found
        self.gradients: Gradients = {}
        self._before = self._drawn()

    def _drawn(self) -> Tensor:
        """Changes with every random number that torch draws on the device of the run."""
        on_gpu = self.run.device is not None and self.run.device.type == "cuda"
        return torch.cuda.get_rng_state(self.run.device or "cuda") if on_gpu else torch.get_rng_state()

    def micro_batch(self, batch: Any) -> contextlib.AbstractContextManager[Any]:
        self._before = self._drawn()
        return contextlib.nullcontext()

    def loss(self, loss: Loss, optim: str) -> None:
        self.found.means |= loss.is_mean
        if not torch.equal(self._before, self._drawn()):
            self.found.unknown = DRAWS

    def update(self, optim: Any) -> contextlib.AbstractContextManager[Any]:
        own = {id(param) for param in optim.params}
        for name, param in self.run.model.named_parameters():
            if param.grad is not None and id(param) in own:
                self.gradients[name] = param.grad.detach().clone().cpu()
        return contextlib.nullcontext()


def _optims(run: Run) -> Iterator[Any]:
    return iter(run.optim.values() if isinstance(run.optim, Mapping) else [run.optim])


class Samples(Dataset[Any]):
    """Samples that were read before."""

    def __init__(self, samples: Sequence[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


def plan(count: int, unit: str, here: int) -> Iterator[Cut]:
    """The cuts that a group of `here` processes makes; steps of unequal size are among them.

    >>> [(cut.size, cut.steps) for cut in plan(8, "sample", 1)], [cut.size for cut in plan(8, "sample", 2)]
    ([(8, 1), (5, 2), (1, 8)], [8, 5])
    """
    if unit == "batch":
        yield Cut(None, count // here, here)
        return
    sizes = [count, count // 2 + 1 if count > 2 else 1]
    if here == 1 and count > 2:
        sizes.append(1 if count <= ONE_BY_ONE else -(-count // 4))
    for size in sizes:
        yield Cut(size, -(-count // size), here)


def mixes_samples(module: nn.Module) -> str:
    """Why gradients depend on the cut, where what a module gives for a sample depends on the others of its batch."""
    names = [
        f"{name} ({type(inner).__name__})" for name, inner in module.named_modules() if isinstance(inner, _BatchNorm)
    ]
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{', '.join(names[:3])}{more}: what it gives for a sample depends on the others of its step, so the gradient "
        "cannot be the same for another cut; use GroupNorm or LayerNorm where that matters"
    )


def without_dropout(module: nn.Module) -> bool:
    """Turns off the dropout of a module, under the names that torch and transformers have for it."""
    found = False
    for name, value in list(vars(module).items()):
        rate = isinstance(value, float) and value > 0
        if rate and ("drop" in name.lower() or (name == "p" and isinstance(module, nn.modules.dropout._DropoutNd))):
            setattr(module, name, 0.0)
            found = True
    return found


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _is_of_types(error: BaseException) -> bool:
    """Whether an error says that numbers of two types met."""
    text = str(error).lower()
    return not isinstance(error, AlchemyError) and any(word in text for word in ("dtype", "double", "float64"))


def _failed(error: BaseException) -> AlchemyError:
    if isinstance(error, AlchemyError):
        return error
    return RunFailed(f"the training step failed: {type(error).__name__}: {error}")


def _several(number: int, word: str, ending: str = "s") -> str:
    return f"{number:,} {word}{'' if number == 1 else ending}"
