"""The process group for distributed training and its collectives."""

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
from alchemy.launch.ranks import LOST, WATCHED, RankInfo, get_rank_info
from alchemy.null_objects import ProcessGroup, SingleProcess

if TYPE_CHECKING:
    from alchemy.optim import AlchemyOptimizer

BUCKET_BYTES = 2**25  # gradients are reduced in buckets: flattening all at once would double their memory
_opened = itertools.count()


class Sharing:
    """The `[ddp]` table: options of DistributedDataParallel; unused with a single process.

    `find_unused_parameters = False` saves DDP a graph traversal per step, and silences its warning that the traversal
    was unnecessary. Every step must then use every parameter. It also makes DDP reorder its buckets after the first
    step: with three or more ranks, the order of summation changes and a resumed run is no longer bit-identical.
    """

    def __init__(self, *, find_unused_parameters: bool = True) -> None:
        self.find_unused_parameters = find_unused_parameters


class Processes:
    """A group of several processes; every method is a collective that all ranks must call in the same order.

    Tensors are communicated on the backend's device: the GPU for nccl, the CPU for gloo (MPS has no float64).
    """

    def __init__(self, local_rank: int, store: dist.Store | None = None) -> None:
        self.rank, self.size, self.local_rank = dist.get_rank(), dist.get_world_size(), local_rank
        self.is_main = self.rank == 0
        self._wrapped: nn.Module | None = None
        self._shared: frozenset[int] = frozenset()  # ids of the parameters that DDP synchronizes
        self.store = store  # set if this module created the group
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
        """Wrap a module in DDP, which broadcasts the weights of rank 0."""
        if not any(param.requires_grad for param in module.parameters()):
            return module  # DDP raises an error without trainable parameters
        devices = None
        if self._device.type == "cuda":
            devices = [self.local_rank]
            check_no_sparse_grads(module)
        # gradients are views of the buckets, which saves a copy
        settings = {"gradient_as_bucket_view": True, **vars(sharing or Sharing())}
        wrapped = DistributedDataParallel(module, device_ids=devices, **settings)
        self._shared = frozenset(id(param) for param in module.parameters() if param.requires_grad)
        self._wrapped = wrapped
        return wrapped

    def unshared(self, module: nn.Module, optim: AlchemyOptimizer) -> list[nn.Parameter]:
        """Return the parameters that DDP does not synchronize: not in the module, or frozen when it was wrapped."""
        shared = self._shared if module is self._wrapped else frozenset()
        return [param for param in optim.params if id(param) not in shared]

    def no_sync(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Return a context without gradient synchronization. It must include `forward`, where DDP checks for it."""
        return module.no_sync() if isinstance(module, DistributedDataParallel) else contextlib.nullcontext()

    @torch.no_grad()
    def average_grads(self, params: Iterable[nn.Parameter]) -> None:
        """Average gradients over all ranks. If only some ranks have a gradient, it is treated as zero on the others."""
        trained = [param for param in params if param.requires_grad]
        if not trained:
            return
        found = torch.tensor([_kind(param.grad) for param in trained], dtype=torch.uint8, device=self._device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        kinds = found.tolist()  # identical on all ranks, so all of them build the same buckets
        for param in (param for param, kind in zip(trained, kinds) if kind == _SPARSE):
            self._average_sparse(param)
        for bucket in _take_tensors([param for param, kind in zip(trained, kinds) if kind == _DENSE], BUCKET_BYTES):
            self._average(bucket)

    def _average_sparse(self, param: nn.Parameter) -> None:
        """Average a sparse gradient; rows that are missing on a rank are treated as zero."""
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


def check_no_sparse_grads(module: nn.Module) -> None:
    """Raise an error for the first module with sparse gradients, which nccl cannot average."""
    for name, inner in module.named_modules():
        if isinstance(inner, nn.Embedding | nn.EmbeddingBag) and inner.sparse:
            hint = "build it with sparse=False, or train in one process"
            text = f"{name or type(inner).__name__}: nccl cannot average sparse gradients"
            raise AlchemyError(text, section="model", hint=hint)


Group = SingleProcess | Processes
_NONE, _SPARSE, _DENSE = range(3)  # if the ranks differ, the largest value applies to all of them


def _kind(grad: Tensor | None) -> int:
    if grad is None:
        return _NONE
    return _SPARSE if grad.is_sparse else _DENSE


def local_device(device_info: dict[str, Any]) -> dict[str, Any]:
    """Return the device of this process: with several processes, the GPU whose index is its local rank."""
    here = get_rank_info()
    if here.size == 1 or not str(device_info["device"]).startswith("cuda"):
        return device_info
    return alloc_cuda(here.local_rank)


@contextlib.contextmanager
def open_group(device_type: str = "cpu", timeout: float = 600) -> Iterator[Group]:
    """Open the process group described by the environment, or `SingleProcess` if there is none.

    A group created by a script or by accelerate is reused and not closed. `timeout` (seconds) limits every collective.
    """
    here = get_rank_info()
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
        # no barrier: the other ranks notice the closed connections instead of waiting for a timeout
        _record_failure(store, here.rank, error)
        _abort()
        raise
    # if a rank exited early, torchrun would kill the others, perhaps before the record is closed
    with contextlib.suppress(RuntimeError):
        dist.barrier()
    dist.destroy_process_group()


def _join(here: RankInfo, device_type: str, timeout: datetime.timedelta) -> dist.Store:
    # a store outlives its group, and torchrun's store outlives the processes: a prefix per group keeps a later group
    # from reading the addresses of an earlier one
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    shared = _store(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    store = dist.PrefixStore(f"alchemy/{attempt}/{next(_opened)}", shared)
    options: dict[str, Any] = {"backend": "gloo"}
    if device_type == "cuda":
        torch.cuda.set_device(here.local_rank)  # gather allocates on the current device
        options = {"backend": "nccl", "device_id": torch.device("cuda", here.local_rank)}
    dist.init_process_group(store=store, rank=here.rank, world_size=here.size, timeout=timeout, **options)
    return store


@functools.cache
def _store(address: str, port: str) -> dist.Store:
    """Connect to the store; the connection is cached, because rank 0 may be serving the store."""
    store, _, _ = next(dist.rendezvous("env://"))
    return store


def _record_failure(store: dist.Store, rank: int, error: BaseException) -> None:
    """Record this failure if it is the first one; otherwise add the first failure to the error as a note."""
    trace = "" if isinstance(error, AlchemyError) else "".join(traceback.format_exception(error))
    own = json.dumps([f"rank {rank}: {format_error(error)}", trace, f"rank {rank}: {explain_failure(error)}"])
    with contextlib.suppress(RuntimeError):  # the store is gone with its process
        first = store.compare_set("failed", "", own).decode()
        if first and first != own:
            error.add_note(f"the first to fail was {Failure(*json.loads(first)).reason}")


class Failure(NamedTuple):
    """A failure in another process."""

    reason: str
    trace: str = ""  # its traceback, if any
    text: str = ""  # a short version


def first_failure(group: ProcessGroup, error: BaseException) -> Failure | None:
    """Return the failure of the rank that broke the connection to this one, such as `rank 1: ValueError: ..`."""
    store = group.store if isinstance(group, Processes) else None
    with contextlib.suppress(RuntimeError):  # the store is gone with its process
        if store is not None and store.check(["failed"]):
            return Failure(*json.loads(store.get("failed")))
        if store is not None and _is_broken(error):
            return Failure(_lost_rank())
    return None


def _is_broken(error: BaseException) -> bool:
    """Return whether an error means that the connection to another process broke."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "/gloo/" in str(error))


def _lost_rank() -> str:
    """Return how a killed process ended, as soon as the launcher reports it."""
    store = _store(os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
    if not store.check([WATCHED]):  # torchrun does not report it
        return "another process was lost: it was killed or ran out of memory"
    store.wait([LOST], datetime.timedelta(seconds=10))
    return store.get(LOST).decode()


def _abort() -> None:
    """Close the group without waiting for collectives that the other ranks will never join."""
    abort = getattr(dist.distributed_c10d, "_abort_process_group", dist.destroy_process_group)  # only in torch >= 2.6
    with contextlib.suppress(RuntimeError, ValueError):
        abort()
