"""Capture intermediate values of fixed probe examples during training: `[capture]`."""

# H heads, Q query tokens, K key tokens

from __future__ import annotations

import contextlib
import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from alchemy.constraints import NotEmpty, PositiveInt
from alchemy.context import Run, current_run
from alchemy.data.files import check_file
from alchemy.data.loader import get_dataloader
from alchemy.data.tables import BadRow, TableFormat, open_table
from alchemy.errors import AlchemyError
from alchemy.nn.record_attention import AttentionRecorder
from alchemy.pipeline.sched import is_last_epoch
from alchemy.predict_inputs import InputHandler, build_input_handler
from alchemy.seeds import preserve_rng_state

TOKENS = 128  # maximum number of queries and keys of an attention map
FEATURES = 64  # maximum length of a vector that is stored with all its values
CHANNELS = 16  # maximum number of feature maps that are drawn
CALLS = 16  # maximum number of calls of a module whose attention is stored
TITLES = ("text", "source_text", "tokens", "file")  # fields that describe an example
# loader options that make no sense for single examples
_NOT_USED = ("sampler", "batch_sampler", "drop_last", "num_workers", "prefetch_factor", "persistent_workers", "timeout")


@runtime_checkable
class _SpellsTokens(Protocol):
    """A task that knows the tokens of a batch."""

    def spell(self, batch: Any) -> Mapping[str, list[str]]: ...


class Example(NamedTuple):
    """A probe example as a batch of its own, and a text that describes it."""

    batch: Any
    title: str


class AttentionMap(NamedTuple):
    """The beginning of a matrix of attention weights, and its whole size."""

    weights_HQK: Tensor
    queries: int
    keys: int


@dataclass
class _Values:
    """What the modules computed for one example, by path."""

    attention: dict[str, AttentionMap] = field(default_factory=dict)
    outputs: dict[str, Tensor] = field(default_factory=dict)


class Capture:
    """Stores what modules compute for probe examples every `every` updates, and at the end of training.

    `modules` are glob patterns for the names of modules, such as `encoder.*.attn`; `examples` is the number of examples
    from the start of `dev`, or a file with one input per row. Attention weights inside the modules are logged as maps,
    and other outputs as distributions and pictures. The examples are run one by one in evaluation mode with the weights
    that evaluations use. Training is not affected: results are bit-identical, and between captures nothing is hooked.
    """

    def __init__(
        self,
        *,
        modules: Annotated[list[str], NotEmpty()],
        examples: PositiveInt | str | Path = 4,
        every: PositiveInt = 500,
    ) -> None:
        self.run: Run = current_run()
        self.every = every
        self.modules = find_modules(self.run.model.module, modules)
        with preserve_rng_state():
            self.examples = list(
                _first_examples(self.run, examples) if isinstance(examples, int) else _read_examples(self.run, examples)
            )
        self._done = 0  # the last update that was captured

    def after_step(self, outputs: object = None, **kwargs: object) -> dict[str, Any]:
        """Capture if an update is due; called like an end-step pipe."""
        if self.run.update % self.every == 0 and self.run.update != self._done and not self.run.mid_window:
            self.capture()
        return kwargs

    def after_epoch(self, **kwargs: object) -> dict[str, Any]:
        """Capture if the last update of an epoch is due, or if training is complete; called like an end-epoch pipe."""
        if is_last_epoch(self.run) and self.run.update != self._done:
            self.capture()
        return self.after_step(**kwargs)

    def capture(self) -> None:
        """Run the probe examples and log what the modules compute; a failure is a warning."""
        run, self._done = self.run, self.run.update
        if run.group.size == 1 and not run.media.is_open:
            return
        try:
            found = [self._run_example(example.batch) for example in self.examples]
            for number, (example, values) in enumerate(zip(self.examples, found), start=1):
                self._log_attention(example, values.attention, number)
            for path in self.modules:
                outputs = {
                    number: values.outputs[path] for number, values in enumerate(found) if path in values.outputs
                }
                if outputs:
                    self._log_outputs(path, outputs)
        except Exception as error:  # such as running out of memory; training matters more
            run.warn_once("{} failed, training continues: {!r}", "[capture]", error)

    def _run_example(self, batch: Any) -> _Values:
        run, values, stack = self.run, _Values(), list[str]()
        wrapped = run.model.model
        with (
            preserve_rng_state(),
            run.metrics.scope("capture", root=True),
            run.average.applied(),
            run.precision.autocast(),
            torch.no_grad(),
            self._hooked(values, stack),
            AttentionRecorder(lambda weights: _keep(values.attention, stack, weights)),
        ):
            run.model.eval()
            run.model.model = run.model.module  # neither compiled nor DDP, which have hooks of their own
            buffers = [(buffer, buffer.clone()) for buffer in run.model.module.buffers()]
            try:
                run.task.probe(run.task.to_device(batch))
            finally:
                run.model.model = wrapped
                for buffer, before in buffers:  # a module may change them in evaluation mode, too
                    buffer.copy_(before)
        for path in values.attention:
            values.outputs.pop(path, None)
        return values

    @contextlib.contextmanager
    def _hooked(self, values: _Values, stack: list[str]) -> Iterator[None]:
        """Inside this block, the outputs of the modules are stored, and `stack` names the inner modules that run."""
        with contextlib.ExitStack() as hooks:
            inner = {
                f"{path}.{name}".removesuffix("."): part
                for path, module in self.modules.items()
                for name, part in module.named_modules()
            }
            for path, module in inner.items():
                hooks.callback(module.register_forward_pre_hook(_Enter(path, stack)).remove)
                leave = _Leave(path, stack, values, path in self.modules)
                # also if the module raises an error, which its parent may handle
                hooks.callback(module.register_forward_hook(leave, always_call=True).remove)
            yield

    def _log_attention(self, example: Example, attention: Mapping[str, AttentionMap], number: int) -> None:
        task = self.run.task
        tokens = task.spell(example.batch) if isinstance(task, _SpellsTokens) else {}
        for path, found in attention.items():
            rows, columns = (names[:TOKENS] for names in label_axes(tokens, found, path))
            name = f"capture/{path}/{number}"
            self.run.log_attention(name, found.weights_HQK, rows, columns, example=example.title)

    def _log_outputs(self, path: str, outputs: Mapping[int, Tensor]) -> None:
        """Log the distribution of the outputs, and each of them by its shape: vector, matrix or feature maps.

        Outputs are given by the number of their example, since a module may not be called for all of them.
        """
        run, titles = self.run, {number: self.examples[number].title for number in outputs}
        run.log_histogram(f"capture/{path}", torch.cat([output.flatten() for output in outputs.values()]))
        if all(output.dim() <= 1 and output.numel() <= FEATURES for output in outputs.values()):
            columns = ["example", *map(str, range(max(output.numel() for output in outputs.values())))]
            rows = [[titles[number], *output.flatten().tolist()] for number, output in outputs.items()]
            run.log_table(f"capture/{path}", columns, [row + [None] * (len(columns) - len(row)) for row in rows])
        for number, output in outputs.items():
            name = f"capture/{path}/{number + 1}"
            if output.dim() == 2:
                run.log_image(name, output, caption=titles[number])
            elif output.dim() == 3:
                run.log_images(name, list(output[:CHANNELS]))


class _Enter:
    """A forward pre-hook: the module is now the innermost one."""

    def __init__(self, path: str, stack: list[str]) -> None:
        self.path, self.stack = path, stack

    def __call__(self, module: nn.Module, args: object) -> None:
        self.stack.append(self.path)


class _Leave:
    """A forward hook that keeps the output of a captured module for the first sample of the batch."""

    def __init__(self, path: str, stack: list[str], values: _Values, captured: bool) -> None:
        self.path, self.stack, self.values, self.captured = path, stack, values, captured

    def __call__(self, module: nn.Module, args: object, result: object) -> None:
        self.stack.pop()
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        if self.captured and tensors and tensors[0].dim():
            output = tensors[0].detach()
            first = (output if output.layout == torch.strided else output.to_dense())[0]
            self.values.outputs.setdefault(self.path, first.float())


def _keep(attention: dict[str, AttentionMap], stack: Sequence[str], weights: Tensor) -> None:
    """Keep attention weights under the name of the innermost module, if it is captured."""
    if not stack or weights.dim() < 3:
        return
    calls = sum(path.partition("#")[0] == stack[-1] for path in attention)
    if calls < CALLS:
        weights_HQK = (weights[0] if weights.dim() == 4 else weights)[:, :TOKENS, :TOKENS].float().clone()
        name = f"{stack[-1]}#{calls + 1}" if calls else stack[-1]
        attention[name] = AttentionMap(weights_HQK, *weights.shape[-2:])


def find_modules(module: nn.Module, patterns: Sequence[str]) -> dict[str, nn.Module]:
    """Return the modules whose names match one of the glob patterns; raise an error if a pattern matches none."""
    names = {name: part for name, part in module.named_modules() if name}
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=4, cutoff=0.4) or list(names)[:4]
            hint = f"modules with similar names: {', '.join(near)}; `alchemy model CFG` shows all"
            raise AlchemyError(f"no module matches {pattern!r}", section="capture", hint=hint)
    return {name: part for name, part in names.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


def label_axes(tokens: Mapping[str, list[str]], found: AttentionMap, path: str) -> tuple[list[str], list[str]]:
    """Return the tokens of the queries and keys; numbers where the lengths show that they are not tokens.

    Source and target are told apart by their lengths, and if these are equal, by the name of the module and by whether
    the weights are causal. A decoder's queries are named by the tokens that it predicts.
    """
    weights_HQK, queries, keys = found
    source, target = tokens.get("source", []), tokens.get("target", [])
    decodes = queries == len(target) and (queries != len(source) or "decoder" in path)
    is_causal = queries == keys and not weights_HQK.triu(1).any()
    looks_back = decodes and keys == len(target) and (keys != len(source) or is_causal)
    names = [target if decodes else source, ["<begin>", *target[:-1]] if looks_back else source]
    sizes = (queries, keys)
    rows, columns = (name if len(name) == size else list(map(str, range(size))) for name, size in zip(names, sizes))
    return rows, columns


# -- examples
def _first_examples(run: Run, count: int) -> list[Example]:
    """Return the first examples of `dev`, or of the first split if there is no `dev`."""
    split = "dev" if "dev" in run.task.splits else next(iter(run.task.splits))
    dataset, options = run.task.dataset(split)
    kept = {key: value for key, value in options.items() if key not in _NOT_USED}
    if "max_tokens" in kept or "max_sentences" in kept:
        kept |= {"max_sentences": 1, "sort_by_length": False}
        kept.pop("max_tokens", None)
    elif kept.get("batch_size"):
        kept["batch_size"] = 1
    if kept.get("shuffle"):
        kept["shuffle"] = False
    batches = itertools.islice(get_dataloader(dataset, seed=run.seed, **kept), count)
    return [Example(batch, _describe(batch, f"{split}[{number}]")) for number, batch in enumerate(batches)]


def _read_examples(run: Run, file: str | Path) -> list[Example]:
    """Return the examples of a file, whose rows are inputs as for `alchemy predict`."""
    splits = run.task.splits
    before = dict(splits)
    try:
        handler = build_input_handler(run)
        if not check_file(file).is_file():  # a FIFO would block
            raise AlchemyError(f"{file} is not a regular file")
        rows = open_table(check_file(file), TableFormat("jsonl")).rows
        found = [(f"{file}:{number}", _build_batch(handler, f"{file}:{number}", row)) for number, row in rows]
    except AlchemyError as error:
        raise AlchemyError(error.problem.message, where=error.problem.where, section="capture") from error
    finally:  # a handler may load a split with the inputs instead of its data
        splits.clear()
        splits.update(before)
    if not found:
        raise AlchemyError(f"{file} has no examples", section="capture")
    return [Example(batch, _describe(batch, where)) for where, batch in found]


def _build_batch(handler: InputHandler, where: str, row: object) -> Any:
    if isinstance(row, BadRow):
        raise AlchemyError(str(row), where=where)
    return handler.build_batch(where, row)


def _describe(batch: Any, where: str) -> str:
    values = [batch[name] for name in TITLES if name in batch] if isinstance(batch, Mapping) else []
    if not values:
        return where
    first = values[0][0]
    text = first if isinstance(first, str) else " ".join(map(str, first))
    return f"{where}: {text[:200]}"
