"""Mixed precision, compilation and memory savings: the `[precision]` table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from loguru import logger
from torch import Tensor

from alchemy.constraints import PositiveFloat, PositiveInt
from alchemy.context import Run, current_run
from alchemy.data.peek import describe
from alchemy.errors import AlchemyError, RunFailed
from alchemy.nn.loss_scale import LossScale
from alchemy.nn.oom import explain_oom, gradients_kept, halves, is_oom, merge_halves
from alchemy.nn.recompute import recompute
from alchemy.registry import Registrable, build, construct

if TYPE_CHECKING:
    from alchemy.model import AlchemyModel
    from alchemy.optim import AlchemyOptimizer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NO_CONTEXT: contextlib.nullcontext[None] = contextlib.nullcontext()

Step = Callable[..., Any]


class Precision(Registrable):
    """Mixed precision, loss scaling, activation recomputation, compilation and out-of-memory handling.

    The weights keep their dtype; `dtype` runs operations in bfloat16 or float16 where autocast considers it safe.
    `recompute` names modules whose activations are recomputed in the backward pass instead of stored. `compile` is true
    or a table with the arguments of `torch.compile`. `halve_on_oom` splits a batch that does not fit into memory; the
    gradient stays the same.
    """

    def __init__(
        self,
        *,
        dtype: Literal["fp32", "bf16", "fp16"] = "fp32",
        scale: PositiveFloat = 65536.0,
        scale_every: PositiveInt = 2000,
        compile: bool | dict[str, Any] = False,
        recompute: str | Sequence[str] = (),
        halve_on_oom: bool = False,
        anomaly: bool = False,
    ) -> None:
        self.run: Run = current_run()
        self.dtype, self.compile, self.halve_on_oom = DTYPES[dtype], compile, halve_on_oom
        self.recompute = [recompute] if isinstance(recompute, str) else list(recompute)
        self.loss_scale = LossScale(scale, scale_every) if dtype == "fp16" else None
        self._warned = False
        if anomaly:
            self.run.exits.enter_context(torch.autograd.set_detect_anomaly(True))

    # -- the model
    def prepare(self, model: AlchemyModel) -> None:
        """Prepare the model; called once, after the optimizer is built and before the model is wrapped in DDP."""
        if self.recompute:
            names = recompute(model.module, self.recompute)
            logger.info("activations recomputed in the backward pass: {}", ", ".join(names))
        if self.loss_scale is not None and self._device == "cpu":
            logger.warning("[precision] fp16 is slow and inaccurate on a CPU; bf16 needs no loss scaling")
        if self.loss_scale is not None and any(p.dtype is torch.float16 for p in model.parameters()):
            hint = "load them as float32; dtype = 'fp16' casts operations where this is safe"
            raise AlchemyError(
                "the weights are float16, which rounds small updates to zero", section="precision", hint=hint
            )
        if self.compile is not False:
            options = self.compile if isinstance(self.compile, Mapping) else {}
            model.model.compile(**options)  # in place, so that the names of the weights do not change

    # -- one step
    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager that runs operations in `dtype` where this is safe."""
        return _NO_CONTEXT if self.dtype is torch.float32 else torch.autocast(self._device, self.dtype)

    @property
    def _device(self) -> str:
        return "cpu" if self.run.device is None else self.run.device.type

    def attempt(self, step: Step, batch: object, **kwargs: object) -> Any:
        """Run `step(batch)` under autocast; if memory runs out, run it on two halves or raise an error with advice.

        A training step is split only if it has not changed its window, so the halves add the same sums to that window.
        """
        before = self._position()
        try:
            with self.autocast():
                return step(batch, **kwargs)
        except Exception as error:
            if not is_oom(error):
                raise
            why = self._no_split_reason(batch, before != self._position())
            if why is not None:
                raise explain_oom(error, describe(batch), why) from error
        # outside the except block, so that the frames holding the step's tensors are released
        return self._run_halves(step, batch)

    def _position(self) -> object:
        """Return the position of the window, which is needed only if a batch may be split."""
        return self.run.updater.position if self.halve_on_oom else None

    def _no_split_reason(self, batch: object, moved: bool) -> str | None:
        """Return why a batch cannot be split, an empty string if splitting is disabled, or None if it can be split."""
        if not self.halve_on_oom or not torch.is_grad_enabled():
            return ""
        if self.run.group.size > 1:
            return "batch not split: the other processes would wait for this one"
        if self.run.updater.no_split_reason:
            return f"batch not split: {self.run.updater.no_split_reason}"
        if moved:
            return "batch not split: part of the update was already made"
        return None if halves(batch) is not None else "batch not split: one sample, or no clear batch dimension"

    def _run_halves(self, step: Step, batch: object) -> Any:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not self._warned:
            self._warned = True
            logger.warning("out of memory: splitting {} in half; a smaller batch_size is faster", describe(batch))
        with self.run.updater.merge_losses():
            results = [_check_sums(self.attempt(step, half), batch) for half in halves(batch) or ()]
        return results[-1][0], merge_halves([outputs for _, outputs in results])

    # -- the backward pass and the update
    def gradients(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager around a backward pass, without autocast; a failed pass adds no gradients.

        If memory runs out during the pass, the batch can be split only if none of its gradients remain.
        """
        # with several processes, batches are not split, and DDP needs the gradients of the window in place
        if not self.halve_on_oom or self.run.group.size > 1:
            return self._no_autocast()
        stack = contextlib.ExitStack()
        stack.enter_context(self._no_autocast())
        stack.enter_context(gradients_kept(self.run.optim.params))
        return stack

    def _no_autocast(self) -> contextlib.AbstractContextManager[Any]:
        return _NO_CONTEXT if self.dtype is torch.float32 else torch.autocast(self._device, enabled=False)

    @property
    def scales(self) -> bool:
        """Whether updates may be skipped because the loss scale is too large."""
        return self.loss_scale is not None

    def scale(self, loss: Tensor) -> Tensor:
        """Scale the loss so that float16 gradients do not underflow."""
        if self.loss_scale is None:
            return loss
        # 65536 overflows float16
        return (loss.float() if loss.dtype.itemsize < 4 else loss) * self.loss_scale.value

    def unscale(self, optim: AlchemyOptimizer) -> None:
        """Remove the loss scale from the gradients before they are divided or clipped."""
        if self.loss_scale is not None:
            self.loss_scale.unscale(optim.params)

    def accepts(self, optim: AlchemyOptimizer) -> bool:
        """Return whether to make the update; if gradients overflowed, lower the scale and return False."""
        scale = self.loss_scale
        if scale is None:
            return True
        before, good = scale.value, scale.is_good()
        if scale.value != before and self.run.optim is not optim:
            # rescale the open windows of other optimizers; a power of 2 is exact
            own = {id(param) for param in optim.params}
            waiting = [p.grad for p in self.run.optim.params if p.grad is not None and id(p) not in own]
            for grad in waiting:
                grad.mul_(scale.value / before)
        return good

    def after_step(self) -> None:
        """Clear cached casts of the weights, so that a second forward pass in this step sees the new weights."""
        torch.clear_autocast_cache()

    # -- state
    def state_dict(self) -> dict[str, Any]:
        return {} if self.loss_scale is None else self.loss_scale.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.loss_scale is not None and state:
            self.loss_scale.load_state_dict(state)


def _check_sums(result: object, batch: object) -> tuple[str, Mapping[str, Any]]:
    """Return the text and the outputs for one half; raise an error for a mean loss, because its weight is unknown."""
    text, outputs = result if isinstance(result, tuple) and len(result) == 2 else ("", result)
    if not isinstance(outputs, Mapping) or not {"loss_sum", "count"} <= outputs.keys():
        hint = "return a sum and its count as the loss, or set halve_on_oom = false"
        raise RunFailed(f"out of memory on a batch of {describe(batch)}, and a mean loss cannot be split", hint=hint)
    return text, outputs


def build_precision(run: Run) -> Precision:
    """Build the precision from `[precision]`; the default is full precision with helpful out-of-memory errors."""
    table = run.table("precision")
    make = build if "type" in table else construct
    precision: Precision = make(Precision, table, section="precision")
    return precision
