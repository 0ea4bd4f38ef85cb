"""The contract of a model: a module, its outputs and loss, its weights on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from safetensors.torch import load_file
from torch import Tensor, nn

from alchemy.checkpoint.extra_state import extra_of, read_extra, write_extra
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.lazy import lazy
from alchemy.nn.losses import Loss
from alchemy.nn.param_groups import matches
from alchemy.nn.partial_load import load_partial
from alchemy.nn.weights import load_weights, save_all, unwrap
from alchemy.registry import Registrable, resolve

if TYPE_CHECKING:
    from alchemy.legacy.backward import BackwardHandler as BackwardHandler
    from alchemy.legacy.backward import Default as Default
    from alchemy.legacy.backward import DefaultBackwardHandler as DefaultBackwardHandler

# names of older projects, fetched when they are used
_OLD = dict.fromkeys(("BackwardHandler", "Default", "DefaultBackwardHandler"), "legacy.backward")
_OLD["NotFinite"] = "update"
__getattr__, _ = lazy("alchemy", _OLD)


class AlchemyModel(Registrable):
    """Wraps an `nn.Module`. A subclass calls `super().__init__()`, sets `self.model`, and returns outputs and a loss.

    class Tagger(AlchemyModel):
        def __init__(self, *, hidden: int = 64) -> None:
            super().__init__()
            self.model = nn.LSTM(100, hidden)
            self.criterion = build_loss(self.criterion_cfg)

        def forward(self, batch):
            return {"logits": self.model(batch["x"])}

        def loss(self, outputs, batch):
            return self.criterion(outputs["logits"], batch["y"])
    """

    _model: Any = None
    _backward: Any = None
    _modules_of: tuple[Any, list[nn.Module]] = (None, [])
    _told = False  # that something cannot be saved

    def __init__(self) -> None:
        self.run: Run = current_run()

    @classmethod
    def from_registry(cls, ty: str, *args: object, **kwargs: object) -> Any:
        """The model named `ty`, as runners of a project build it."""
        model = super().from_registry(ty, *args, **kwargs)
        resolve("alchemy.legacy.adapt.adapt_run")(current_run(), model)
        return model

    # -- its tables
    @property
    def cfg(self) -> Any:
        """The whole configuration."""
        return self.run.cfg

    @property
    def model_cfg(self) -> Any:
        return self.run.table("model")

    @property
    def criterion_cfg(self) -> Any:
        """The table `[criterion]`; None where there is none, as in a test or an inference."""
        return self.run.cfg.get("criterion")

    @property
    def backward_cfg(self) -> Any:
        return self.run.cfg.get("backward")

    # -- the module
    @property
    def model(self) -> Any:
        """The module, as it is wrapped now; may be replaced during training."""
        if self._model is None:
            hint = "set self.model = nn.Module in its constructor"
            raise AlchemyError(f"{type(self).__name__} has no module yet", section="model", hint=hint)
        return self._model

    @model.setter
    def model(self, model: object) -> None:
        if not isinstance(model, nn.Module):
            logger.warning("model is set to a {}, which is not an nn.Module", type(model).__name__)
        self._model = model

    @property
    def module(self) -> Any:
        """The module without its wrappers (DDP, DataParallel, torch.compile)."""
        return unwrap(self.model)

    @property
    def backward(self) -> Any:
        """The handler that models of older projects call inside `forward`, made when it is first asked for."""
        if self._backward is None:
            self._backward = resolve("alchemy.legacy.backward.build_handler")(self.run)
        return self._backward

    @backward.setter
    def backward(self, handler: object) -> None:
        self._backward = handler

    @property
    def has_handler(self) -> bool:
        return self._backward is not None

    def losses(self) -> dict[str, nn.Module]:
        """Losses kept beside the module; where they have parameters, these are trained and saved with the model."""
        inner = {id(module) for module in self.module.modules()} if self._model is not None else set()
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, nn.Module)
            and (isinstance(value, Loss | nn.modules.loss._Loss) or name == "criterion")
            and id(value) not in inner
        }

    # -- what a project defines
    def forward(self, batch: Any) -> Mapping[str, Any]:
        """The outputs for a batch, by name."""
        text = f"{type(self).__name__} must define forward(self, batch)"
        raise AlchemyError(text, section="model", hint="it returns a dict of outputs, as {'logits': self.model(..)}")

    def loss(self, outputs: Mapping[str, Any], batch: Any) -> tuple[Tensor, float | Tensor]:
        """The sum of the losses of a batch, and what it counts: samples, tokens, or the weights of targets."""
        text = f"{type(self).__name__} must define loss(self, outputs, batch)"
        raise AlchemyError(text, section="model", hint="it returns the sum of the losses and their count")

    def __call__(self, *args: object, **kwargs: object) -> Mapping[str, Any]:
        return self.forward(*args, **kwargs)

    def optim_params(self, **table: object) -> Any:
        """What is optimized: parameters or groups. Gets every key of `[optim]`."""
        return list(self.module.parameters())

    def max_positions(self) -> int | None:
        """The longest input that the model takes; None when there is no limit."""
        return None

    def set_requires_grad(self, requires_grad: bool, mode: str, **kwargs: object) -> None:
        """Freezes or thaws the parameters that `mode` names: "all", a prefix, a part of the name or a pattern."""
        found = [param for name, param in self.module.named_parameters() if mode == "all" or matches(name, mode)]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in self.module.named_parameters()})
            hint = did_you_mean(mode, names) or f"there are {', '.join(names)}"
            raise AlchemyError(f"no parameter matches {mode!r}", section="model", hint=hint)
        for param in found:
            param.requires_grad = requires_grad

    # -- as a module
    def train(self, mode: bool = True) -> None:
        model = self.model
        if mode and isinstance(model, nn.Module):
            if self._modules_of[0] is not model:
                self._modules_of = (model, list(model.modules()))
            # the loop asks before every step; looking is 20 times cheaper than setting it again
            if all([module.training for module in self._modules_of[1]]):  # noqa: C419 (a list is faster here)
                return
        model.train(mode)
        for loss in self.losses().values():
            loss.train(mode)

    def eval(self) -> None:
        self.train(False)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        for loss in self.losses().values():
            loss.to(*args, **kwargs)
        return self.model.to(*args, **kwargs)

    def parameters(self) -> Iterator[nn.Parameter]:
        return (param for _, param in self.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The module's parameters, then those of losses as `criterion:gamma`."""
        yield from self.module.named_parameters()
        for name, loss in self.losses().items():
            for inner, param in loss.named_parameters():
                yield f"{name}:{inner}", param

    def state_dict(self) -> dict[str, Tensor]:
        state = dict(self.module.state_dict())
        for name, loss in self.losses().items():
            state |= {f"{name}:{key}": value for key, value in loss.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor], strict: bool = True) -> None:
        losses = self.losses()
        parts = {"": self.module, **losses}
        values: dict[str, dict[str, Tensor]] = {name: {} for name in parts}
        for key, value in state.items():
            loss, colon, inner = key.partition(":")
            of_loss = bool(colon) and loss in losses
            values[loss if of_loss else ""][inner if of_loss else key] = value
        for name, module in parts.items():
            try:
                module.load_state_dict(values[name], strict=strict)
            except RuntimeError as error:
                raise AlchemyError(f"the saved weights do not fit {name or type(module).__name__}: {error}") from error

    def save(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Writes the weights into the folder `path`: model.safetensors, and a file for each loss that has weights.

        What a module keeps beside its tensors (`get_extra_state`) goes to model.extra.safetensors. With `model` the
        weights of that module are written in place of the current ones.
        """
        modules = self.saved_modules() if model is None else {**self.saved_modules(), "model": unwrap(model)}
        save_all(modules, Path(path), self._save_extra)

    def _save_extra(self, module: nn.Module, folder: Path, name: str) -> None:
        left_out = ", ".join(write_extra(module, folder, name))
        if left_out and not self._told:
            self._told = True
            logger.warning("{}: neither a JSON value nor a tensor, so it is not saved with the weights", left_out)

    def load(self, path: str | Path, strict: bool = True) -> None:
        """Reads the weights that `save` wrote, or a checkpoint: of that the averaged ones, where it has them.

        `strict=False` takes what fits by name.
        """
        for name, module in self.saved_modules().items():
            extra = read_extra(module, Path(path), name)
            load_weights(module, Path(path) / f"{name}.safetensors", strict, extra)
            if missing := extra_of(module).keys() - extra.keys():
                logger.warning("{} has no {} of {}: it stays as it is", path, ", ".join(sorted(missing)), name)
        averaged = Path(path) / "ema.safetensors"
        if averaged.is_file():  # of what is trained; buffers and frozen weights are the model's
            load_partial(self.module, load_file(averaged))

    def saved_modules(self) -> dict[str, nn.Module]:
        return {"model": self.module, **{name: loss for name, loss in self.losses().items() if loss.state_dict()}}
