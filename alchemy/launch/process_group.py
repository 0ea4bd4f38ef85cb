"""The processes that train one model together, and what they tell each other."""

from __future__ import annotations

import contextlib
import datetime
import functools
import itertools
import json
import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel

from alchemy.errors import AlchemyError, explain_failure, format_error
from alchemy.launch.device import alloc_cuda
from alchemy.launch.ranks import LOST, WATCHED
from alchemy.null_objects import ProcessGroup, SingleProcess

if TYPE_CHECKING:
    from alchemy.optim import AlchemyOptimizer

NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
BUCKET_BYTES = 2**25  # gradients travel in pieces: a copy of all of them at once would double their memory
_opened = itertools.count()


class Sharing:
    """How several processes share a model: the table `[ddp]`; one process alone has no use for it.

    `find_unused_parameters = False` spares DDP a walk over the graph in every step, and torch's remark that it was in
    vain. Then every parameter must be used in every step, and DDP sorts its buckets anew after the first one: with
    three ranks or more, sums are added in another order, so that a resumed run is no longer equal to the bit.
    """

    def __init__(self, *, find_unused_parameters: bool = True) -> None:
        self.find_unused_parameters = find_unused_parameters


class Processes:
    """A group of several processes; every member is a call that all of them make, in the same order.

    Numbers go by the device that the backend wants: the GPU for nccl, the CPU for gloo (so MPS, which has no float64,
    is never asked for it).
    """

    def __init__(self, local_rank: int, store: dist.Store | None = None) -> None:
        self.rank, self.size, self.local_rank = dist.get_rank(), dist.get_world_size(), local_rank
        self.is_main = self.rank == 0
        self._wrapped: nn.Module | None = None
        self._shared: frozenset[int] = frozenset()  # the parameters that DDP takes care of
        self.store = store  # of a group that is ours
        self._device = torch.device("cuda", local_rank) if "nccl" in dist.get_backend() else torch.device("cpu")

    def sum(self, numbers: Sequence[float]) -> list[float]:
        totals = torch.tensor([float(number) for number in numbers], dtype=torch.float64, device=self._device)
        dist.all_reduce(totals)
        return totals.tolist()

    def any(self, flag: bool) -> bool:
        return self.sum([bool(flag)])[0] > 0

    def gather(self, value: object) -> list[Any]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: object) -> Any:
        values = [value if self.is_main else None]
        dist.broadcast_object_list(values, src=0, device=self._device)
        return values[0]

    def barrier(self) -> None:
        dist.barrier(device_ids=[self.local_rank] if self._device.type == "cuda" else None)

    def wrap(self, module: nn.Module, sharing: Sharing | None = None) -> nn.Module:
        """DDP around a module; the weights become those of rank 0."""
        if not any(param.requires_grad for param in module.parameters()):
            return module  # no gradient to share, and DDP would refuse it
        devices = None
        if self._device.type == "cuda":
            devices = [self.local_rank]
            refuse_sparse(module)
        # gradients as views of the buckets: no second copy of them
        settings = {"gradient_as_bucket_view": True, **vars(sharing or Sharing())}
        wrapped = DistributedDataParallel(module, device_ids=devices, **settings)
        self._shared = frozenset(id(param) for param in module.parameters() if param.requires_grad)
        self._wrapped = wrapped
        return wrapped

    def unshared(self, module: nn.Module, optim: AlchemyOptimizer) -> list[nn.Parameter]:
        """The parameters whose gradients DDP does not send: not in the module, or frozen when it was wrapped."""
        shared = self._shared if module is self._wrapped else frozenset()
        return [param for param in optim.params if id(param) not in shared]

    def no_sync(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Inside, gradients stay in this process; DDP decides in `forward`, so that belongs inside too."""
        return module.no_sync() if isinstance(module, DistributedDataParallel) else contextlib.nullcontext()

    @torch.no_grad()
    def average_grads(self, params: Iterable[nn.Parameter]) -> None:
        """The mean of each gradient over the ranks. One that is missing counts as zero where any rank has it."""
        trained = [param for param in params if param.requires_grad]
        if not trained:
            return
        found = torch.tensor([_kind(param.grad) for param in trained], dtype=torch.uint8, device=self._device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        kinds = found.tolist()  # the same on every rank: all of them list the same parameters and cut them alike
        for param in (param for param, kind in zip(trained, kinds) if kind == _SPARSE):
            self._average_sparse(param)
        for bucket in _take_tensors([param for param, kind in zip(trained, kinds) if kind == _DENSE], BUCKET_BYTES):
            self._average(bucket)

    def _average_sparse(self, param: nn.Parameter) -> None:
        """A row that only some ranks have counts as zero in the others."""
        if param.grad is None:
            param.grad = torch.zeros_like(param).to_sparse(1)
        grad = param.grad.coalesce()
        dist.all_reduce(grad)
        param.grad = grad / self.size

    def _average(self, bucket: list[nn.Parameter]) -> None:
        grads = [torch.zeros_like(param) if param.grad is None else param.grad.to_dense() for param in bucket]
        flat = _flatten_dense_tensors(grads)
        dist.all_reduce(flat)
        flat /= self.size
        for param, grad, mean in zip(bucket, grads, _unflatten_dense_tensors(flat, grads)):
            grad.copy_(mean)
            param.grad = grad


def refuse_sparse(module: nn.Module) -> None:
    """An error that names the first module whose gradients nccl could not average."""
    for name, inner in module.named_modules():
        if isinstance(inner, nn.Embedding | nn.EmbeddingBag) and inner.sparse:
            hint = "build it with sparse=False, or train in one process"
            text = f"{name or type(inner).__name__}: nccl cannot average sparse gradients"
            raise AlchemyError(text, section="model", hint=hint)


Group = SingleProcess | Processes
_NONE, _SPARSE, _DENSE = range(3)  # where ranks differ, the last of them is what all have


def _kind(grad: Tensor | None) -> int:
    if grad is None:
        return _NONE
    return _SPARSE if grad.is_sparse else _DENSE


class _Place(NamedTuple):
    """Where this process stands among those that torchrun has started."""

    rank: int
    size: int
    local_rank: int


def place() -> _Place:
    """What the environment says; alone where it says nothing, an error where it says half of it."""
    given = {name: os.environ[name] for name in NEEDED if os.environ.get(name)}
    if given.get("WORLD_SIZE") == "1" or not {"WORLD_SIZE", "RANK"} & given.keys():
        return _Place(0, 1, 0)
    hint = "start it with torchrun --nproc-per-node N, or unset them to run alone"
    missing = [name for name in NEEDED if name not in given]
    if missing:
        raise AlchemyError(f"{', '.join(given)} set without {', '.join(missing)}", hint=hint)
    try:
        found = _Place(*(int(given[name]) for name in NEEDED[:3]))
    except ValueError:
        found = _Place(-1, 0, 0)
    if not 0 <= found.rank < found.size:
        shown = ", ".join(f"{name}={given[name]}" for name in NEEDED[:3])
        raise AlchemyError(f"{shown}: RANK is to be a number from 0 to WORLD_SIZE - 1", hint=hint)
    return found


def local_device(device_info: dict[str, Any]) -> dict[str, Any]:
    """The device of this process: with several processes and a GPU, the one that has its local rank as number."""
    here = place()
    if here.size == 1 or not str(device_info["device"]).startswith("cuda"):
        return device_info
    return alloc_cuda(here.local_rank)


@contextlib.contextmanager
def open_group(device_type: str = "cpu", timeout: float = 600) -> Iterator[Group]:
    """The group that torchrun's environment describes; `SingleProcess` without it.

    One that a script or accelerate has made is used, and left to its owner. `timeout` (seconds) bounds every wait.
    """
    here = place()
    if dist.is_available() and dist.is_initialized():
        yield Processes(here.local_rank) if dist.get_world_size() > 1 else SingleProcess()
        return
    if here.size == 1:
        yield SingleProcess()
        return
    store = _join(here, device_type, datetime.timedelta(seconds=timeout))
    try:
        yield Processes(here.local_rank, store)
    except BaseException as error:
        # no barrier: the others are told by the connections that close, not by a timeout
        _tell(store, here.rank, error)
        _abort()
        raise
    # whoever left first would have torchrun end the others, or find a record that the first process has not closed
    with contextlib.suppress(RuntimeError):
        dist.barrier()
    dist.destroy_process_group()


def _join(here: _Place, device_type: str, timeout: datetime.timedelta) -> dist.Store:
    # a store outlives its group, and that of torchrun the processes: each opening has names of its own, or a second
    # one would find the addresses of the first
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    shared = _store(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    store = dist.PrefixStore(f"alchemy/{attempt}/{next(_opened)}", shared)
    options: dict[str, Any] = {"backend": "gloo"}
    if device_type == "cuda":
        torch.cuda.set_device(here.local_rank)  # gather puts its bytes on the current device
        options = {"backend": "nccl", "device_id": torch.device("cuda", here.local_rank)}
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=timeout, **options)
    return store


@functools.cache
def _store(address: str, port: str) -> dist.Store:
    """The store behind the address; kept, since the process of rank 0 may be the one that serves it."""
    store, _, _ = next(dist.rendezvous("env://"))
    return store


def _tell(store: dist.Store, rank: int, error: BaseException) -> None:
    """Writes down which rank failed first, and adds it to the error where that was another one."""
    trace = "" if isinstance(error, AlchemyError) else "".join(traceback.format_exception(error))
    own = json.dumps([f"rank {rank}: {format_error(error)}", trace, f"rank {rank}: {explain_failure(error)}"])
    with contextlib.suppress(RuntimeError):  # the store has gone with its process
        first = store.compare_set("failed", "", own).decode()
        if first and first != own:
            error.add_note(f"the first to fail was {Failure(*json.loads(first)).reason}")


class Failure(NamedTuple):
    """Why another process ended."""

    reason: str
    trace: str = ""  # its traceback, where it had one
    text: str = ""  # the same in a few lines


def first_failure(group: ProcessGroup, error: BaseException) -> Failure | None:
    """Why the connection of this process broke: `rank 1: ValueError: ..` of the one that failed before it did."""
    store = group.store if isinstance(group, Processes) else None
    with contextlib.suppress(RuntimeError):  # the store has gone with its process
        if store is not None and store.check(["failed"]):
            return Failure(*json.loads(store.get("failed")))
        if store is not None and _is_broken(error):
            return Failure(_lost())
    return None


def _is_broken(error: BaseException) -> bool:
    """Whether an error says that another process does not answer."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


def _lost() -> str:
    """How a process ended that could not say so itself; who has started it sees that a moment later."""
    store = _store(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    if not store.check([WATCHED]):  # torchrun keeps it to itself
        return "another process was lost: it was killed, or ran out of memory"
    store.wait([LOST], datetime.timedelta(seconds=10))
    return store.get(LOST).decode()


def _abort() -> None:
    """Ends the group without waiting for collectives that the others will never join."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", dist.destroy_process_group)  # torch >= 2.6 has it
    with contextlib.suppress(RuntimeError, ValueError):
        abort()
