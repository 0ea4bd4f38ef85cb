"""In which numbers a model computes, and what it does to save memory: the table `[precision]`."""

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
_AS_IT_IS: contextlib.nullcontext[None] = contextlib.nullcontext()

Step = Callable[..., Any]


class Precision(Registrable):
    """Mixed precision, loss scaling, recomputation, compilation, and what happens when memory runs out.

    The weights stay as they are; with `dtype` the model computes in bfloat16 or float16 where torch holds that to be
    safe. `recompute` names modules that compute their activations twice to keep none. `compile = true`, or a table with
    the arguments of `torch.compile`. `halve_on_oom` cuts a batch that does not fit; its gradient stays the same.
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
        self._told = False
        if anomaly:
            self.run.exits.enter_context(torch.autograd.set_detect_anomaly(True))

    # -- the model
    def prepare(self, model: AlchemyModel) -> None:
        """Called once, when model and optimizer are built, and before the model is wrapped for several processes."""
        if self.recompute:
            names = recompute(model.module, self.recompute)
            logger.info("recomputed in the backward pass: {}", ", ".join(names))
        if self.loss_scale is not None and self._device == "cpu":
            logger.warning("[precision] fp16 on a CPU is slow and loses accuracy; bf16 needs no scale")
        if self.loss_scale is not None and any(p.dtype is torch.float16 for p in model.parameters()):
            hint = "load them as float32; dtype = 'fp16' casts where it is safe"
            raise AlchemyError(
                "the weights are float16, in which updates are rounded away", section="precision", hint=hint
            )
        if self.compile is not False:
            options = self.compile if isinstance(self.compile, Mapping) else {}
            model.model.compile(**options)  # in place: the names of the weights stay as they are

    # -- one step
    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Inside, operations for which it is safe compute in `dtype`."""
        return _AS_IT_IS if self.dtype is torch.float32 else torch.autocast(self._device, self.dtype)

    @property
    def _device(self) -> str:
        return "cpu" if self.run.device is None else self.run.device.type

    def attempt(self, step: Step, batch: object, **kwargs: object) -> Any:
        """`step(batch)` under autocast; where memory runs out, its halves, or an error that says what would help.

        Only a training step whose window has not moved yet is halved: the halves add the same sums to the same window.
        """
        before = self._position()
        try:
            with self.autocast():
                return step(batch, **kwargs)
        except Exception as error:
            if not is_oom(error):
                raise
            why = self._why_whole(batch, before != self._position())
            if why is not None:
                raise explain_oom(error, describe(batch), why) from error
        # here the error is gone, and with it the frames that hold what the step had computed
        return self._in_halves(step, batch)

    def _position(self) -> object:
        """Where the window stands; only asked where a batch may be halved."""
        return self.run.updater.position if self.halve_on_oom else None

    def _why_whole(self, batch: object, moved: bool) -> str | None:
        """Why a batch is not halved: a reason, nothing where nobody asked for it, or None where it can be."""
        if not self.halve_on_oom or not torch.is_grad_enabled():
            return ""
        if self.run.group.size > 1:
            return "not halved: the other processes would wait for a step that this one does not take"
        if self.run.updater.why_whole:
            return f"not halved: {self.run.updater.why_whole}"
        if moved:
            return "not halved: the step had made a part of its update already"
        return None if halves(batch) is not None else "not halved: it has one sample, or it is not plain where to cut"

    def _in_halves(self, step: Step, batch: object) -> Any:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if not self._told:
            self._told = True
            logger.warning("out of memory: {} is computed in halves; a smaller batch_size is faster", describe(batch))
        with self.run.updater.joined():
            answers = [_of_sums(self.attempt(step, half), batch) for half in halves(batch) or ()]
        return answers[-1][0], merge_halves([outputs for _, outputs in answers])

    # -- the backward pass and the update
    def gradients(self) -> contextlib.AbstractContextManager[Any]:
        """Around a backward pass: it takes the types of its forward and is not cast again; and it adds all or nothing.

        Where memory runs out in the middle of it, a batch can only be halved if none of its gradients stay.
        """
        # with several processes no batch is halved, and DDP must find the gradients of the window where they are
        if not self.halve_on_oom or self.run.group.size > 1:
            return self._uncast()
        around = contextlib.ExitStack()
        around.enter_context(self._uncast())
        around.enter_context(gradients_kept(self.run.optim.params))
        return around

    def _uncast(self) -> contextlib.AbstractContextManager[Any]:
        return _AS_IT_IS if self.dtype is torch.float32 else torch.autocast(self._device, enabled=False)

    @property
    def scales(self) -> bool:
        """Whether an update may be left out only because the scale was too large."""
        return self.loss_scale is not None

    def scale(self, loss: Tensor) -> Tensor:
        """The loss that gradients are taken of, large enough that those in float16 do not vanish."""
        if self.loss_scale is None:
            return loss
        # a float16 times 65536 is infinite
        return (loss.float() if loss.dtype.itemsize < 4 else loss) * self.loss_scale.value

    def unscale(self, optim: AlchemyOptimizer) -> None:
        """Takes the scale out of the gradients of a window, before anybody divides or clips them."""
        if self.loss_scale is not None:
            self.loss_scale.unscale(optim.params)

    def accepts(self, optim: AlchemyOptimizer) -> bool:
        """Whether an update may be made; False where gradients had overflown, which lowers the scale."""
        scale = self.loss_scale
        if scale is None:
            return True
        before, good = scale.value, scale.is_good()
        if scale.value != before and self.run.optim is not optim:
            # windows of other optimizers are open, and must go on with one scale; a power of 2 changes no digit
            own = {id(param) for param in optim.params}
            waiting = [p.grad for p in self.run.optim.params if p.grad is not None and id(p) not in own]
            for grad in waiting:
                grad.mul_(scale.value / before)
        return good

    def after_step(self) -> None:
        """Forgets casts of the weights as they were: a second forward in this step must see the new ones."""
        torch.clear_autocast_cache()

    # -- state
    def state_dict(self) -> dict[str, Any]:
        return {} if self.loss_scale is None else self.loss_scale.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self.loss_scale is not None and state:
            self.loss_scale.load_state_dict(state)


def _of_sums(answer: object, batch: object) -> tuple[str, Mapping[str, Any]]:
    """The text and the outputs of a half; means cannot be put together again, since nobody knows their weights."""
    text, outputs = answer if isinstance(answer, tuple) and len(answer) == 2 else ("", answer)
    if not isinstance(outputs, Mapping) or not {"loss_sum", "count"} <= outputs.keys():
        hint = "return a sum and its count as the loss, or set halve_on_oom = false"
        raise RunFailed(
            f"out of memory on a batch of {describe(batch)}, and the halves of a mean loss differ", hint=hint
        )
    return text, outputs


def build_precision(run: Run) -> Precision:
    """What `[precision]` says; without the table full precision, which still explains a lack of memory."""
    table = run.table("precision")
    make = build if "type" in table else construct
    precision: Precision = make(Precision, table, section="precision")
    return precision
