"""Trace a forward pass: which modules are called, what they return, and which outputs they read."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

JOIN = "+"  # begins the last part of the path of a join
MANY = 8  # joins of a module that are told apart; a loop over time steps would create one per step
SYMBOLS = {"add": "+", "sub": "−", "mul": "×", "div": "÷", "cat": "concat", "concat": "concat", "matmul": "@"}


@dataclass
class ModuleCall:
    """The calls of a module: output shapes of the first one, and FLOPs of all, without those of inner modules."""

    shapes: list[list[int]]
    count: int = 0
    flops: int = 0


@dataclass
class Trace:
    """A forward pass. Paths are those of `named_modules`, `<name>` for inputs, and `path.+0` for joins.

    A join is a function outside of modules, such as an addition, whose inputs come from several modules.
    """

    calls: dict[str, ModuleCall] = field(default_factory=dict)
    joins: dict[str, str] = field(default_factory=dict)  # path -> symbol
    edges: dict[tuple[str, str], None] = field(default_factory=dict)  # from, to; ordered
    order: dict[str, int] = field(default_factory=dict)  # path -> when it was first entered
    hosts: set[str] = field(default_factory=set)  # modules that call others which are not part of them


def trace_modules(module: nn.Module, forward: Callable[[], object], inputs: Mapping[str, Any]) -> Trace:
    """Run `forward`, which calls `module` or parts of it, and return what happened.

    The data flow follows tensors through Python functions of torch. A custom autograd function between two modules
    hides the connection.
    """
    tracer = _Tracer()
    with contextlib.ExitStack() as stack:
        for path, part in module.named_modules():
            stack.enter_context(tracer.watch(path, part))
        # fused kernels for attention and recurrent networks (oneDNN) are not counted
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        onednn, *_ = torch.backends.mkldnn.set_flags(_enabled=False, _fp32_precision=None)
        stack.callback(torch.backends.mkldnn.set_flags, _enabled=onednn, _fp32_precision=None)
        stack.enter_context(tracer.counter)
        for name, value in inputs.items():
            for tensor in _tensors(value):
                tracer.origin[tensor] = f"<{name}>"
        with tracer:
            forward()
    return tracer.trace


@dataclass
class _OpenCall:
    """A call that has not returned yet."""

    path: str
    origins: Sequence[str] = ()  # where its inputs come from
    begin: int = 0  # FLOPs counted before it
    inner: int = 0  # FLOPs of the modules it called
    joins: int = 0
    is_leaf: bool = True


class _FlopCounter(TorchDispatchMode):
    """Counts FLOPs. Unlike torch's FlopCounterMode, it adds no hooks, which would disturb `torch.autograd.grad`."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        if count := flop_registry.get(func._overloadpacket):
            self.total += count(*args, **kwargs or {}, out_val=result)
        return result


class _Tracer(TorchFunctionMode):
    """Remembers for each tensor which module, join or input it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.trace, self.counter = Trace(), _FlopCounter()
        self.origin = WeakTensorKeyDictionary()
        self._open = [_OpenCall("")]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        if made := _tensors(result):
            origin = self._join(self._origins((args, kwargs)), func.__name__)
            for tensor in made if origin else ():
                self.origin[tensor] = origin
        return result

    def _origins(self, values: object) -> list[str]:
        found = [self.origin.get(tensor) for tensor in _tensors(values)]
        return list(dict.fromkeys(origin for origin in found if origin))

    def _join(self, origins: Sequence[str], function: str) -> str:
        """Return the origin of a function's result."""
        # masks and the like come from the inputs; connecting them everywhere would hide the structure
        modules = [origin for origin in origins if not origin.startswith("<")]
        call = self._open[-1]
        path = f"{call.path}.{JOIN}{min(call.joins, MANY)}".removeprefix(".")
        call.joins += len(origins) > 1  # also those of inputs, which are joins in the next repetition of a block
        if len(modules) < 2:
            return (modules or [*origins, ""])[0]
        function = function.strip("_").removesuffix("_")
        plain = function.removeprefix("i").removeprefix("r")
        self.trace.joins.setdefault(path, SYMBOLS.get(function) or SYMBOLS.get(plain) or function)
        self.trace.order.setdefault(path, len(self.trace.order))
        self.trace.edges |= {(origin, path): None for origin in modules if origin != path}
        return path

    @contextlib.contextmanager
    def watch(self, path: str, module: nn.Module) -> Iterator[None]:
        """Inside this block, the calls of a module are traced."""

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._open[-1].is_leaf = False
            outer = (call.path for call in self._open[1:] if call.path)
            self.trace.hosts.update(host for host in outer if not path.startswith(f"{host}."))
            self.trace.order.setdefault(path, len(self.trace.order))
            self._open.append(_OpenCall(path, self._origins((args, kwargs)), self.counter.total))

        def leave(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            self._close(self._open.pop(), _tensors(result))

        handles = [
            module.register_forward_pre_hook(enter, with_kwargs=True),
            module.register_forward_hook(leave, with_kwargs=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _close(self, call: _OpenCall, made: Sequence[Tensor]) -> None:
        flops = self.counter.total - call.begin
        self._open[-1].inner += flops
        entry = self.trace.calls.setdefault(call.path, ModuleCall([list(tensor.shape) for tensor in made]))
        entry.count += 1
        entry.flops += flops - call.inner
        if call.is_leaf:
            self.trace.edges |= {(origin, call.path): None for origin in call.origins if origin != call.path}
        for tensor in made:
            if call.is_leaf or tensor not in self.origin:
                self.origin[tensor] = call.path


def _tensors(value: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
