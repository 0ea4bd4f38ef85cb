"""Build the model from `[model]`, including plain `nn.Module` classes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from alchemy.checkpoint.manifest import MANIFEST
from alchemy.context import Run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.loss_observer import Loss
from alchemy.model import AlchemyModel
from alchemy.nn.build_net import build_module
from alchemy.nn.losses import build_loss, check_target
from alchemy.registry import build, parameters, resolve, where_of

# keys of [model] that are not passed to the constructor of a plain module
RESERVED = ("inputs", "outputs", "freeze", "load", "model_path")
WEIGHTS = "model.safetensors"
IGNORED = -100  # the label ignored by modules that compute their own loss


def build_model(run: Run, weights: Path | None = None) -> AlchemyModel:
    """Build the model from `[model]` and load `model_path`, unless the constructor of the model does so.

    `weights` is a checkpoint that overrides `model_path`; a model with a custom format receives it as `model_path`.
    """
    table = run.table("model")
    if "type" not in table:
        hint = 'for example type = "src.model.Model"'
        raise AlchemyError("missing 'type': a run needs a [model] table with a 'type'", section="model", hint=hint)
    maker = _maker(str(table["type"]))
    if maker is not None:
        if weights is not None:
            table["model_path"] = str(weights)
        return PlainModel(_module(maker, table), **{key: table[key] for key in RESERVED if key in table})
    kind = AlchemyModel.resolve_registered_module(table["type"])
    names, takes_any = parameters(kind)
    if weights is not None and ("model_path" in names or not _is_ours(weights, kind)):
        table["model_path"], weights = str(weights), None
    loads = bool(names) and not takes_any and "model_path" not in names
    model: AlchemyModel = build(AlchemyModel, table, drop=("model_path",) if loads else (), section="model")
    if weights is not None:
        model.load(weights)
    elif loads and table.get("model_path"):
        model.load(table["model_path"])
    return model


def _is_ours(weights: Path, kind: type[AlchemyModel]) -> bool:
    """Return whether `AlchemyModel.load` can read the weights: a checkpoint, or a model without a custom `save`."""
    return (weights / MANIFEST).is_file() or (kind.save is AlchemyModel.save and (weights / WEIGHTS).is_file())


def _maker(name: str) -> Callable[..., Any] | None:
    """Return the module class or factory named `name`; None if it is a registered model or unknown."""
    try:
        AlchemyModel.resolve_registered_module(name)
    except AlchemyError as error:
        try:
            found = resolve(name)
        except AlchemyError:
            return None
        if not callable(found):
            raise error from None
        return found
    return None


def _module(maker: Callable[..., Any], table: Mapping[str, Any]) -> nn.Module:
    names, takes_any = parameters(maker)
    taken = [key for key in RESERVED if key in names]
    if taken:
        text = f"{taken[0]!r} is both a reserved key of [model] and an argument of {table['type']}"
        hint = f"rename the argument, or wrap the class in a function with a different name for {taken[0]!r}"
        raise AlchemyError(text, where=where_of(table, taken[0]), section="model", hint=hint)
    unknown = [key for key in table if key not in ("type", *RESERVED)]
    if unknown and not names and not takes_any:  # `construct` assumes that such a class reads its table itself
        text = f"{table['type']} has no option {unknown[0]!r}"
        hint = did_you_mean(unknown[0], RESERVED) or "its constructor takes no arguments"
        raise AlchemyError(text, where=where_of(table, unknown[0]), section="model", hint=hint)
    return build_module(maker, table, drop=("type", *RESERVED), section="model")


class PlainModel(AlchemyModel):
    """A wrapper that passes the fields of a batch to a plain module and computes the loss from `[criterion]`.

    Fields are passed to `forward` by parameter name; `inputs = { parameter = "field" }` maps other names. A tuple is
    passed by position. A returned tensor becomes the `logits` output, a dict is used as is, and `outputs` names the
    elements of a tuple. `freeze` names parameters that are not trained; `load` is a file or folder from which to load
    matching weights.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        inputs: Mapping[str, str] = {},
        outputs: str | Sequence[str] = "logits",
        freeze: str | Sequence[str] = (),
        load: str = "",
        model_path: str = "",
    ) -> None:
        super().__init__()
        self.model = module
        self.names = (outputs,) if isinstance(outputs, str) else tuple(outputs)
        self._fields = _map_fields(module, inputs)
        self._shifts = _predicts_next(module)
        table = dict(self.criterion_cfg or {})
        self.target, self.scored = table.pop("target", ""), table.pop("output", "")
        self.criterion = build_loss(table) if table else None
        self.freeze(freeze)
        if model_path:
            self.load(model_path)
        elif load:
            self.load_matching(load)

    def forward(self, batch: Any) -> Mapping[str, Any]:
        if isinstance(batch, Mapping):
            inputs = {name: batch[field] for name, field in self._fields.of(batch)}
            try:
                result = self.model(**inputs)
            except IndexError as error:
                if "labels" in inputs:  # the module computes its own loss from them
                    check_target(error, inputs["labels"])
                raise
        elif isinstance(batch, tuple | list):
            result = self.model(*self._fields.by_position(batch, has_target=self.criterion is not None))
        else:
            result = self.model(batch)
        return self._name_outputs(result)

    def _name_outputs(self, result: object) -> Mapping[str, Any]:
        if isinstance(result, Mapping):
            return result
        if result is None:
            text = f"{type(self.module).__name__}.forward returned None"
            raise AlchemyError(text, section="model", hint="return the logits; is a `return` missing?")
        values = (result,) if isinstance(result, Tensor) else result
        if not isinstance(values, tuple | list) or len(values) != len(self.names):
            got = f"{len(values)} values" if isinstance(values, tuple | list) else f"a {type(result).__name__}"
            text = f"{type(self.module).__name__}.forward returned {got}, but [model] outputs names {len(self.names)}"
            raise AlchemyError(text, section="model", hint='name each output: outputs = ["logits", "state"]')
        return dict(zip(self.names, values, strict=True))

    def loss(self, outputs: Mapping[str, Any], batch: Any) -> Any:
        if self.criterion is not None:
            return self.criterion(self._output(outputs), self._target(batch))
        if outputs.get("loss") is None:
            hint = 'add [criterion] with a type and target = "label", or return a loss from forward'
            text = f"the table is missing, and {type(self.module).__name__} returned no 'loss'"
            raise AlchemyError(text, section="criterion", hint=hint)
        return self._own_loss(outputs, batch)

    def _own_loss(self, outputs: Mapping[str, Any], batch: object) -> Loss:
        """Return the loss computed by the module, which is a mean over its labels, if any."""
        loss: Tensor = outputs["loss"]
        labels = batch.get(self._fields.label) if isinstance(batch, Mapping) else None
        if not isinstance(labels, Tensor):
            return Loss(loss, 1, outputs, is_mean=True)
        if self._shifts:
            labels = labels[..., 1:]
        count: int | Tensor = labels.numel() if labels.is_floating_point() else labels.ne(IGNORED).sum()
        if isinstance(count, Tensor) and loss.device.type == "cpu":
            count = int(count)
            if not count:  # without labels, the mean is NaN
                return Loss(outputs["logits"].sum() * 0, 0, outputs)
        return Loss(loss * count, count, outputs)

    def _output(self, outputs: Mapping[str, Any]) -> Any:
        name = self.scored or (self.names[0] if self.names[0] in outputs else "logits")
        if name not in outputs:
            named = next(iter(map(str, outputs)), name)
            hint = did_you_mean(name, map(str, outputs)) or f'name it: output = "{named}" in [criterion]'
            text = f"the loss needs the output {name!r}; available: {', '.join(map(str, outputs)) or 'none'}"
            raise AlchemyError(text, section="criterion", hint=hint)
        return outputs[name]

    def _target(self, batch: object) -> Any:
        if isinstance(batch, tuple | list) and not self.target:
            return batch[-1]
        if not self.target:
            hint = 'for example target = "label"'
            raise AlchemyError("[criterion] does not name the target field", section="criterion", hint=hint)
        if not isinstance(batch, Mapping) or self.target not in batch:
            fields = list(map(str, batch)) if isinstance(batch, Mapping) else []
            hint = did_you_mean(self.target, fields) or f"the batch has {', '.join(fields) or 'no named fields'}"
            raise AlchemyError(f"the batch has no field {self.target!r}", section="criterion", hint=hint)
        return batch[self.target]


class _Fields:
    """The mapping from the fields of a batch to the parameters of `forward`."""

    def __init__(self, title: str, names: Mapping[str, bool], mapped: Mapping[str, str]) -> None:
        self.title, self.names, self.mapped = title, names, dict(mapped)
        self.label = self.mapped.get("labels", "labels")

    def of(self, batch: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return `(parameter, field)` for all available fields; raise an error if a required field is missing."""
        pairs = {name: self.mapped.get(name, name) for name in (*self.names, *self.mapped)}
        missing = [(n, field) for n, field in pairs.items() if field not in batch and self.names.get(n, True)]
        if missing:
            name, field = missing[0]
            fields = ", ".join(map(str, batch))
            way = f'the batch has {fields}: map one of them with inputs = {{ {name} = ".." }}'
            hint = did_you_mean(field, map(str, batch)) or way
            raise AlchemyError(
                f"{self.title}.forward needs {name!r}, but the batch has no field {field!r}", section="model", hint=hint
            )
        return [(name, field) for name, field in pairs.items() if field in batch]

    def by_position(self, batch: Sequence[Any], *, has_target: bool) -> Sequence[Any]:
        """Return the elements of a tuple that `forward` accepts; the last element may be the target."""
        needed = sum(self.names.values())
        if len(batch) < needed:
            text = f"{self.title}.forward needs {needed} arguments, but the batch has {len(batch)} elements"
            raise AlchemyError(text, section="model", hint=f"it takes {', '.join(self.names)}")
        inputs = batch[:-1] if has_target and len(batch) > needed else batch
        return inputs[: len(self.names)]


def _map_fields(module: nn.Module, mapped: Mapping[str, str]) -> _Fields:
    rows = inspect.signature(module.forward).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {row.name: row.default is inspect.Parameter.empty for row in rows if row.kind in named}
    takes_any = any(row.kind is inspect.Parameter.VAR_KEYWORD for row in rows)
    unknown = [name for name in mapped if name not in names and not takes_any]
    title = type(module).__name__
    if unknown:
        hint = did_you_mean(unknown[0], names) or f"it takes {', '.join(names)}"
        raise AlchemyError(f"{title}.forward has no parameter {unknown[0]!r}", section="model.inputs", hint=hint)
    return _Fields(title, names, mapped)


def _predicts_next(module: nn.Module) -> bool:
    """Return whether a module is a causal language model from transformers, which shifts its labels by one."""
    if "transformers" not in sys.modules:
        return False
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    return any(kind.__name__ in NAMES.values() for kind in type(module).__mro__)
