"""Base class for models: the module, its outputs and loss, and saving and loading its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loguru import logger
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from alchemy.checkpoint.extra_state import extra_of, read_extra, write_extra
from alchemy.checkpoint.torch_load import load_any_file
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.lazy import lazy
from alchemy.nn.losses import Loss
from alchemy.nn.param_groups import matches
from alchemy.nn.partial_load import load_partial
from alchemy.nn.rename_weights import rename_weights
from alchemy.nn.weights import load_weights, save_all, unwrap
from alchemy.registry import Registrable, resolve

if TYPE_CHECKING:
    from alchemy.legacy.backward import BackwardHandler as BackwardHandler
    from alchemy.legacy.backward import Default as Default
    from alchemy.legacy.backward import DefaultBackwardHandler as DefaultBackwardHandler

# names used by older projects, imported lazily
_OLD = dict.fromkeys(("BackwardHandler", "Default", "DefaultBackwardHandler"), "legacy.backward")
_OLD["NotFinite"] = "update"
__getattr__, _ = lazy("alchemy", _OLD)


class AlchemyModel(Registrable):
    """Wrapper around an `nn.Module`. A subclass sets `self.model` and defines `forward` and `loss`.

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
    _frozen_norms: Sequence[nn.Module] = ()  # in evaluation mode, even in training
    _warned = False  # whether a warning about state that cannot be saved was logged

    def __init__(self) -> None:
        self.run: Run = current_run()

    @classmethod
    def from_registry(cls, ty: str, *args: object, **kwargs: object) -> Any:
        """Return the model named `ty`, for runners in projects."""
        model = super().from_registry(ty, *args, **kwargs)
        resolve("alchemy.legacy.adapt.adapt_run")(current_run(), model)
        return model

    # -- config tables
    @property
    def cfg(self) -> Any:
        """The whole config."""
        return self.run.cfg

    @property
    def model_cfg(self) -> Any:
        return self.run.table("model")

    @property
    def criterion_cfg(self) -> Any:
        """The `[criterion]` table; None if missing, for example in a test or inference config."""
        return self.run.cfg.get("criterion")

    @property
    def backward_cfg(self) -> Any:
        return self.run.cfg.get("backward")

    # -- the module
    @property
    def model(self) -> Any:
        """The module with its current wrappers; may be replaced during training."""
        if self._model is None:
            hint = "set self.model to an nn.Module in the constructor"
            raise AlchemyError(f"{type(self).__name__} has no module", section="model", hint=hint)
        return self._model

    @model.setter
    def model(self, model: object) -> None:
        if not isinstance(model, nn.Module):
            logger.warning("self.model is a {}, not an nn.Module", type(model).__name__)
        self._model = model

    @property
    def module(self) -> Any:
        """The module without its wrappers (DDP, DataParallel, torch.compile)."""
        return unwrap(self.model)

    @property
    def backward(self) -> Any:
        """The handler that models in older projects call in `forward`; created on first access."""
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
        """Return the losses that are not part of the module; their parameters are trained and saved with the model."""
        inner = {id(module) for module in self.module.modules()} if self._model is not None else set()
        return {
            name: value
            for name, value in vars(self).items()
            if isinstance(value, nn.Module)
            and (isinstance(value, Loss | nn.modules.loss._Loss) or name == "criterion")
            and id(value) not in inner
        }

    # -- defined by subclasses
    def forward(self, batch: Any) -> Mapping[str, Any]:
        """Return the outputs for a batch by name."""
        text = f"{type(self).__name__} must define forward(self, batch)"
        raise AlchemyError(text, section="model", hint="return a dict of outputs: {'logits': self.model(..)}")

    def loss(self, outputs: Mapping[str, Any], batch: Any) -> tuple[Tensor, float | Tensor]:
        """Return the summed loss of a batch and its count: samples, tokens or the total weight of the targets."""
        text = f"{type(self).__name__} must define loss(self, outputs, batch)"
        raise AlchemyError(text, section="model", hint="return the sum of the losses and their count")

    def __call__(self, *args: object, **kwargs: object) -> Mapping[str, Any]:
        return self.forward(*args, **kwargs)

    def optim_params(self, **table: object) -> Any:
        """Return the parameters or parameter groups to optimize; called with every key of `[optim]`."""
        return list(self.module.parameters())

    def max_positions(self) -> int | None:
        """Return the maximum input length of the model; None means no limit."""
        return None

    def set_requires_grad(self, requires_grad: bool, mode: str, **kwargs: object) -> None:
        """Freeze or unfreeze the parameters that match `mode`: "all", a prefix, a substring or a pattern."""
        params = [param for name, param in self.module.named_parameters() if mode == "all" or matches(name, mode)]
        if not params:
            names = sorted({name.split(".")[0] for name, _ in self.module.named_parameters()})
            hint = did_you_mean(mode, names) or f"available: {', '.join(names)}"
            raise AlchemyError(f"no parameter matches {mode!r}", section="model", hint=hint)
        for param in params:
            param.requires_grad = requires_grad

    def freeze(self, patterns: str | Sequence[str]) -> None:
        """Freeze the parameters that match the patterns for the whole run, and the statistics of frozen BatchNorms."""
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            self.set_requires_grad(False, pattern)
        norms = [module for module in self.module.modules() if isinstance(module, _BatchNorm) and module.affine]
        self._frozen_norms = [norm for norm in norms if not any(p.requires_grad for p in norm.parameters())]
        self.train(self.module.training)

    # -- nn.Module interface
    def train(self, mode: bool = True) -> None:
        model = self.model
        if mode and isinstance(model, nn.Module):
            if self._modules_of[0] is not model:
                fixed = set(map(id, self._frozen_norms))
                self._modules_of = (model, [module for module in model.modules() if id(module) not in fixed])
            # called before every step: checking is 20 times cheaper than setting the mode again
            modes = [module.training for module in self._modules_of[1]]
            if all(modes) and not any(norm.training for norm in self._frozen_norms):
                return
        model.train(mode)
        for norm in self._frozen_norms:
            norm.eval()
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
        """Yield the parameters of the module, then the parameters of the losses, named as in `criterion:gamma`."""
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
                text = f"the saved weights do not match {name or type(module).__name__}: {error}"
                raise AlchemyError(text) from error

    def save(self, path: str | Path, model: nn.Module | None = None) -> None:
        """Save the weights to the `path` folder: model.safetensors, and one file per loss with weights.

        Extra state of modules (`get_extra_state`) is saved to model.extra.safetensors. If `model` is given, its
        weights are saved instead of the current ones.
        """
        modules = self.saved_modules() if model is None else {**self.saved_modules(), "model": unwrap(model)}
        save_all(modules, Path(path), self._save_extra)

    def _save_extra(self, module: nn.Module, folder: Path, name: str) -> None:
        unsaved = ", ".join(write_extra(module, folder, name))
        if unsaved and not self._warned:
            self._warned = True
            logger.warning("{} is neither a JSON value nor a tensor and is not saved with the weights", unsaved)

    def load(self, path: str | Path, strict: bool = True) -> None:
        """Load weights written by `save` or stored in a checkpoint, preferring averaged weights.

        `strict=False` loads only the weights whose names match.
        """
        for name, module in self.saved_modules().items():
            extra = read_extra(module, Path(path), name)
            load_weights(module, Path(path) / f"{name}.safetensors", strict, extra)
            if missing := extra_of(module).keys() - extra.keys():
                logger.warning("{} has no {} for {}: keeping the current value", path, ", ".join(sorted(missing)), name)
        averaged = Path(path) / "ema.safetensors"
        if averaged.is_file():  # trained weights only; buffers and frozen weights come from the model
            load_partial(self.module, load_file(averaged))

    def load_matching(self, path: str | Path) -> None:
        """Load the weights of a local file or folder whose names and shapes match, and log a report."""
        path = Path(path).expanduser()
        file = path / "model.safetensors" if path.is_dir() else path
        if not file.is_file():
            hint = "set load to a .safetensors file, a file written by torch.save, or a folder with a model.safetensors"
            raise AlchemyError(f"file not found: {file}", section="model", hint=hint)
        report = load_partial(self.module, rename_weights(self.module, load_any_file(file)))
        if not report.loaded:
            hint = "is it the file of another architecture?"
            raise AlchemyError(f"no weight in {file} matches the model\n{report}", section="model", hint=hint)
        report.log(file)

    def saved_modules(self) -> dict[str, nn.Module]:
        return {"model": self.module, **{name: loss for name, loss in self.losses().items() if loss.state_dict()}}


def tensor_field(batch: Mapping[str, Any], name: str) -> Tensor:
    """Return a tensor field of a batch; raise if it is missing."""
    found = batch.get(name)
    if not isinstance(found, Tensor):
        hint = f"the batch has {', '.join(map(str, batch))}"
        raise AlchemyError(f"the model reads {name!r}, but the batch has no such tensor", hint=hint)
    return found
