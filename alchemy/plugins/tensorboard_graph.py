"""Trace the model on its first inputs, for TensorBoard's Graphs tab."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import torch
from loguru import logger
from torch import Tensor, nn

from alchemy.context import Run


class GraphWriter:
    """Writes the graph of the model once, from the inputs of a training step; the model itself is not called."""

    def __init__(self, run: Run, writer: Any) -> None:
        self.run, self.writer = run, writer
        self._inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._watching = self._done = False

    def write(self) -> None:
        """Watch for inputs at the first call, and write the graph at the second."""
        module: nn.Module = self.run.model.module
        if not self._watching:
            self._watching = True
            self._hook = module.register_forward_pre_hook(self._keep_inputs, with_kwargs=True)
        elif self._inputs is not None and not self._done:
            self._done = True
            (args, kwargs), self._inputs = self._inputs, None
            try:
                self._trace(module, args, kwargs)
            except Exception as error:
                logger.warning("TensorBoard has no graph of this model, because it cannot be traced: {}", error)

    def _keep_inputs(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._hook.remove()
        self._inputs = args, kwargs

    def _trace(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # a copy, because a forward pass would change the statistics of batch normalization
        wrapper = _FromTensors(copy.deepcopy(module).eval(), args, kwargs)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # tracing warns about every Python branch
            self.writer.add_graph(wrapper, wrapper.tensors, use_strict_trace=False)


class _FromTensors(nn.Module):
    """Calls a module with the inputs of an earlier call, of which the tensors are arguments, as tracing requires."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        leaves, self._spec = torch.utils._pytree.tree_flatten((args, kwargs))
        self._leaves = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.tensors = tuple(leaves[place].detach() for place in self._places)

    def forward(self, *tensors: Tensor) -> Any:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors):
            leaves[place] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(leaves, self._spec)
        result = self.module(*args, **kwargs)
        tensors_out = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        return tuple(tensors_out)
