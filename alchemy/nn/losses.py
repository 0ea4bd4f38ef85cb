"""Losses that return a sum and the count by which to divide it."""

# B batch, C classes, d1..dk further dimensions: logits are [B, C, d1..dk], targets [B, d1..dk] or like the logits

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeFloat
from alchemy.errors import AlchemyError, BadSample, did_you_mean
from alchemy.registry import Registrable, build, construct, parameters, resolve

Count = int | Tensor
_BEYOND = re.compile(r"(?:Target|index) (-?\d+) is out of bounds")  # torch's message for a class out of range

_nll_loss = torch.ops.aten.nll_loss_forward.default
_SUM = 2  # the enum value of reduction="sum"

# these divide by the number of rows, not by the number of target elements
BY_ROW = {
    "CTCLoss",
    "CosineEmbeddingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
}


class Loss(nn.Module, Registrable):
    """Base class for losses: `loss(logits, target)` returns the sum and the count; sum / count equals torch's mean.

    Losses return sums because micro-batches and ranks differ in size; the updater divides once, by the total count.
    """

    ignore_index: int = -100  # targets with this value are ignored

    def __init__(self) -> None:  # otherwise the **kwargs of nn.Module would accept any config key
        super().__init__()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except (
            AttributeError,
            IndexError,
            RuntimeError,
            TypeError,
        ) as error:  # checking every batch would be slow
            if len(args) > 1 and not isinstance(error, AlchemyError | torch.OutOfMemoryError):
                check_target(error, args[1], args[0])
            raise

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Count]:
        raise NotImplementedError(f"{type(self).__name__} must define forward(logits, target) -> (sum, count)")


class CrossEntropy(Loss):
    """Cross entropy for class indices, or for class probabilities if the target has the shape of the logits."""

    weight: Tensor | None

    def __init__(
        self, *, label_smoothing: Fraction = 0.0, ignore_index: int = -100, weight: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index
        self.register_buffer("weight", None if weight is None else torch.tensor(weight), persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Count]:
        _check_classes(logits, target)
        weight = self.weight  # read once, because looking up a buffer is slow
        plain = weight is None and not self.label_smoothing and logits.dtype is torch.float32
        if plain and logits.dim() == 2 and not target.is_floating_point():
            # same as F.cross_entropy, but also returns the number of targets
            total, count = _nll_loss(F.log_softmax(logits, 1), target, None, _SUM, self.ignore_index)
            return total, int(count.item()) if count.is_cpu else count
        total = F.cross_entropy(
            logits,
            target,
            weight=weight if weight is None else weight.to(logits.dtype),
            ignore_index=self.ignore_index,
            reduction="sum",
            label_smoothing=self.label_smoothing,
        )
        return total, _class_count(logits, target, self.ignore_index, weight)


class BCE(Loss):
    """Binary cross entropy with logits, for targets of the same shape."""

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, *, weight: Sequence[float] | float | None = None, pos_weight: Sequence[float] | float | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("weight", None if weight is None else torch.tensor(weight), persistent=False)
        self.register_buffer("pos_weight", None if pos_weight is None else torch.tensor(pos_weight), persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Count]:
        _check_same_shape(logits, target)
        total = F.binary_cross_entropy_with_logits(
            logits, target.to(logits.dtype), weight=self.weight, pos_weight=self.pos_weight, reduction="sum"
        )
        return total, target.numel()


class MSE(Loss):
    """Squared error, for targets of the same shape."""

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Count]:
        _check_same_shape(logits, target)
        return F.mse_loss(logits, target.to(logits.dtype), reduction="sum"), target.numel()


class Focal(Loss):
    """Focal loss, which reduces the weight of easy samples: `-alpha (1 - p)^gamma log p`.

    It uses a softmax for class indices, or a sigmoid per logit if the target has the shape of the logits; then `alpha`
    weights the positives and `1 - alpha` the negatives. `learnable = true` turns `alpha` and `gamma` into parameters.
    """

    alpha: Tensor | None
    gamma: Tensor

    def __init__(
        self,
        *,
        alpha: float | Sequence[float] | None = None,
        gamma: NonNegativeFloat = 2.0,
        ignore_index: int = -100,
        learnable: bool = False,
    ) -> None:
        super().__init__()
        if learnable and alpha is None:
            alpha = 1.0
        self.ignore_index = ignore_index
        for name, value in (("alpha", alpha), ("gamma", gamma)):
            tensor = None if value is None else torch.tensor(value, dtype=torch.get_default_dtype())
            if learnable and tensor is not None:
                self.register_parameter(name, nn.Parameter(tensor))
            else:
                self.register_buffer(name, tensor, persistent=False)

    def forward(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Count]:
        if logits.dtype.itemsize < 4:
            logits = logits.float()  # like torch's own losses, because a sum in half precision is inaccurate
        if target.shape == logits.shape:
            return self._binary(logits, target.to(logits.dtype)), target.numel()
        _check_classes(logits, target)
        log_p = F.log_softmax(logits, dim=1)
        kept = target != self.ignore_index
        index = torch.where(kept, target, 0)
        log_pt = log_p.gather(1, index.unsqueeze(1)).squeeze(1)
        # clamp to eps: the gradient of 0 ** gamma is infinite for gamma < 1, and NaN for a learnable gamma
        losses = -((1 - log_pt.exp()).clamp_min(torch.finfo(log_pt.dtype).eps) ** self.gamma) * log_pt
        if self.alpha is not None:
            losses = losses * (self.alpha[index] if self.alpha.dim() else self.alpha)
        return torch.where(kept, losses, 0.0).sum(), _class_count(logits, target, self.ignore_index, None)

    def _binary(self, logits: Tensor, target: Tensor) -> Tensor:
        losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        p = logits.sigmoid()
        missed = p + target - 2 * p * target
        losses = losses * missed.clamp_min(torch.finfo(p.dtype).eps) ** self.gamma
        if self.alpha is not None:
            losses = losses * (self.alpha * target + (1 - self.alpha) * (1 - target))
        return losses.sum()


class _ExternalLoss(Loss):
    """Adapts a torch loss, or any callable that accepts `(logits, target)`."""

    def __init__(self, function: Callable[..., Tensor], *, summed: bool, by_row: bool = False, **options: Any) -> None:
        super().__init__()
        self.function = function  # a module is registered as a submodule, so its parameters are trained
        self.summed, self.by_row, self.options = summed, by_row, options
        settings = vars(function) if isinstance(function, nn.Module) else options
        self.ignores = "ignore_index" in settings
        self.ignore_index = settings.get("ignore_index", self.ignore_index)

    def forward(self, logits: Tensor, target: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Count]:
        value = self.function(logits, target, *args, **self.options, **kwargs)
        if isinstance(value, tuple):
            return value
        count = self._count(logits, target)
        return (value, count) if self.summed else (value * count, count)

    def _count(self, logits: Tensor, target: Tensor) -> Count:
        if self.by_row:
            return int(target.shape[0])
        if not self.ignores:
            return target.numel()
        weight = getattr(self.function, "weight", self.options.get("weight"))
        return _class_count(logits, target, self.ignore_index, weight)


class _NoLoss(Loss):
    """The loss for a config without `[criterion]`; raises an error only when it is called."""

    def forward(self, *args: object, **kwargs: object) -> Any:
        hint = 'add [criterion], for example with type = "alchemy.nn.losses.CrossEntropy"'
        raise AlchemyError("a loss is needed, but the config has no [criterion]", section="criterion", hint=hint)


def build_loss(table: Mapping[str, Any] | None) -> Loss:
    """Build the loss from `[criterion]`: a part, or any torch loss given by its import path."""
    if table is None:
        return _NoLoss()
    if "type" not in table:
        hint = 'write type = "alchemy.nn.losses.CrossEntropy"'
        raise AlchemyError("a loss needs a 'type'", section="criterion", hint=hint)
    found = _find_external(str(table["type"]))
    loss: Loss = build(Loss, table, section="criterion") if found is None else _adapt(found, table)
    return loss


def _find_external(name: str) -> Callable[..., Any] | None:
    """Return a loss that is not a registered part, or None if the registry should resolve it."""
    try:
        Loss.resolve_registered_module(name)
    except AlchemyError:
        with contextlib.suppress(AlchemyError):
            found = resolve(name)
            return found if callable(found) else None
    return None


def _adapt(found: Callable[..., Any], table: Mapping[str, Any]) -> Loss:
    names, _ = parameters(found)
    summed = "reduction" in names
    forced = {"reduction": "sum"} if summed else {}
    if isinstance(found, type):
        made = construct(found, _tensors(table), drop=("type", "reduction"), given=forced, section="criterion")
        return _ExternalLoss(made, summed=summed, by_row=found.__name__ in BY_ROW)
    options = {key: value for key, value in _tensors(table).items() if key not in ("type", "reduction")}
    unknown = [key for key in options if key not in names]
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"it takes {', '.join(names)}"
        raise AlchemyError(f"{table['type']} has no option {unknown[0]!r}", section="criterion", hint=hint)
    if "ignore_index" in names and "ignore_index" not in options:
        options["ignore_index"] = inspect.signature(found).parameters["ignore_index"].default
    return _ExternalLoss(found, summed=summed, **{**options, **forced})


def _tensors(table: Mapping[str, Any]) -> dict[str, Any]:
    """Convert class weights from lists to tensors."""
    return {k: torch.tensor(v) if k in ("weight", "pos_weight") and v is not None else v for k, v in table.items()}


def _class_count(logits: Tensor, target: Tensor, ignore_index: int | None, weight: Tensor | None) -> Count:
    """Return the divisor that torch uses for a class loss: the number of targets not ignored, weighted by class."""
    if target.is_floating_point() and target.shape == logits.shape:
        return target.numel() // logits.shape[1] if logits.dim() > 1 else 1
    if ignore_index is None and weight is None:
        return target.numel()
    kept = torch.ones_like(target, dtype=torch.bool) if ignore_index is None else target.ne(ignore_index)
    if weight is None:
        # reading a value is free on the CPU, but synchronizes on other devices
        kept_count = kept.count_nonzero()
        return int(kept_count.item()) if target.is_cpu else kept_count
    weights = weight.to(logits.dtype)[torch.where(kept, target, 0)]
    return torch.where(kept, weights, 0.0).sum()


def check_target(error: Exception, target: object, logits: object = None) -> None:
    """Raise a clear error if the targets caused torch's error: they are not numbers or not valid classes."""
    if isinstance(target, list | tuple):
        for row, value in enumerate(target):
            if isinstance(value, bool) or not isinstance(value, int | float | Tensor):
                hint = "convert label names to class indices with alchemy.pipeline.label_ids.LabelIds"
                text = f"the target is {repr(value)[:60]}, expected a number"
                raise BadSample(text, row=row, section="criterion", hint=hint) from error
    if isinstance(target, list | tuple):
        hint = "use a collate_fn that returns tensors, such as alchemy.data.collate.Pad"
        text = f"the targets are a {type(target).__name__}, expected a tensor"
        raise AlchemyError(text, section="criterion", hint=hint) from error
    if not isinstance(target, Tensor):
        return  # the target of a custom loss
    if "target dtype" in str(error):
        text = f"the targets have dtype {target.dtype}, expected class indices"
        raise AlchemyError(text, section="criterion", hint="convert them to integers in an earlier pipe") from error
    beyond = _BEYOND.search(str(error))
    if beyond is None or not (places := (target == int(beyond[1])).nonzero()).numel():
        return
    classes = f": the model has {logits.shape[1]} classes" if isinstance(logits, Tensor) and logits.dim() > 1 else ""
    text = f"the target {beyond[1]} is out of range{classes}"
    hint = "classes are numbered from 0: check the labels and the number of classes of the model"
    raise BadSample(text, row=int(places[0, 0]) if target.dim() else 0, section="criterion", hint=hint) from error


def _check_classes(logits: Tensor, target: Tensor) -> None:
    if target.is_floating_point() and target.shape == logits.shape:
        return
    expected = logits.shape[:1] + logits.shape[2:] if logits.dim() > 1 else torch.Size(())
    if target.shape != expected or target.is_floating_point() or target.dtype is torch.bool:
        raise AlchemyError(
            f"targets {tuple(target.shape)} of {target.dtype} do not match logits of shape {tuple(logits.shape)}",
            section="criterion",
            hint=f"pass class indices of shape {tuple(expected)}, or class probabilities shaped like the logits",
        )


def _check_same_shape(logits: Tensor, target: Tensor) -> None:
    # torch would broadcast [B, 1] and [B] to [B, B]
    if logits.shape != target.shape:
        raise AlchemyError(
            f"targets of shape {tuple(target.shape)} do not match predictions of shape {tuple(logits.shape)}",
            section="criterion",
            hint="make the shapes equal, for example with squeeze(-1)",
        )
