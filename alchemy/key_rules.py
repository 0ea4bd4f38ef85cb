"""Rules that involve several keys, shared by the static check and the code that uses the keys.

A rule is a function whose parameters are the keys it needs; parameters with a default are optional keys.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from alchemy.errors import did_you_mean

Violation = tuple[str, str, str]  # key to report, message, hint
_Rule = Callable[..., Iterator[Violation]]


def find_violations(dotted: str, values: Mapping[str, object]) -> Iterator[Violation]:
    """Yield the rules that a part's constructor arguments violate; each argument must already be valid on its own."""
    for rule in RULES.get(dotted, ()):
        keys = _keys(rule)
        if all(key in values for key, required in keys.items() if required):
            yield from rule(**{key: values[key] for key in keys if key in values})


@cache
def _keys(rule: _Rule) -> dict[str, bool]:
    """Map each key of a rule to whether it is required."""
    return {name: row.default is row.empty for name, row in inspect.signature(rule).parameters.items()}


# -- training


def _check_time(hours: float, minutes: float, seconds: float) -> Iterator[Violation]:
    if not (hours or minutes or seconds):
        yield "hours", "Time has no duration", "set hours, minutes or seconds"


def _check_warmup(num_warmup_steps: float) -> Iterator[Violation]:
    if num_warmup_steps > 1 and num_warmup_steps % 1:
        text = f"num_warmup_steps = {num_warmup_steps} is neither a fraction of training nor an integer"
        yield "num_warmup_steps", text, f"use a fraction below 1, or {round(num_warmup_steps)}"


def _check_window(window: int | None, period: int) -> Iterator[Violation]:
    if window is not None and period != 1:
        yield "window", f"window = {window} and period = {period} are both set", "set period or window, not both"


def _check_cosine(t_max: int | None, restarts: int | None, t_0: int | None) -> Iterator[Violation]:
    given = [key for key, value in {"t_max": t_max, "restarts": restarts, "t_0": t_0}.items() if value]
    if len(given) > 1:
        yield given[-1], "Cosine accepts only one of t_max, restarts and t_0", "remove the others"


def check_monitor_name(monitor: str) -> Iterator[Violation]:
    """Check that the name of a monitored metric has a form like `dev/f1`."""
    split, _, name = monitor.partition("/")
    if not split or not name:
        word = monitor.strip("/") or "loss"
        usual = {"train": "train/loss", "dev": "dev/accuracy' or 'dev/loss", "test": "test/accuracy' or 'test/loss"}
        text = f"monitor = {monitor!r} does not name a split and a metric"
        yield "monitor", text, f"write it like '{usual.get(word, f'dev/{word}')}'"


def _check_optional_monitor(monitor: str) -> Iterator[Violation]:
    return check_monitor_name(monitor) if monitor else iter(())


def _check_freeze_range(start: int, until: int | None) -> Iterator[Violation]:
    if until is not None and until <= start:
        yield "until", f"until = {until} must be greater than start = {start}", ""


def _check_nesterov(nesterov: bool, momentum: float, dampening: float) -> Iterator[Violation]:
    if nesterov and (not momentum or dampening):
        yield "nesterov", "nesterov requires momentum and zero dampening", "set momentum = 0.9, or remove nesterov"


def _check_periods(every: float | Mapping[str, float]) -> Iterator[Violation]:
    """Check the units of `every`: a plain number counts updates, and a table names its units."""
    for unit, number in every.items() if isinstance(every, Mapping) else (("updates", every),):
        whole = isinstance(number, int) and number >= 1
        if unit not in _UNITS:
            yield (
                "every",
                f"every has no option {unit!r}",
                did_you_mean(unit, _UNITS) or f"it takes {', '.join(_UNITS)}",
            )
        elif unit == "minutes" and not 0 < number < math.inf:
            yield "every", f"every: minutes must be a finite number above 0, not {number!r}", ""
        elif unit != "minutes" and not whole:
            yield "every", f"every: {unit} must be a positive integer, not {number!r}", ""


def _check_compile_options(compile: bool | Mapping[str, object]) -> Iterator[Violation]:
    for key in compile if isinstance(compile, Mapping) else ():
        if key not in _COMPILE:
            hint = did_you_mean(key, _COMPILE) or f"it takes {', '.join(_COMPILE)}"
            yield "compile", f"torch.compile has no option {key!r}", hint


_UNITS = ("updates", "epochs", "minutes")
_COMPILE = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")


# -- data

# loader options (torch's and alchemy's) with their annotations
LOADER_OPTIONS = {
    "batch_size": "Annotated[int, Ge(1)] | None",
    "shuffle": "bool | None",
    "sampler": "",
    "batch_sampler": "",
    "num_workers": "Annotated[int, Ge(0)]",
    "collate_fn": "",
    "pin_memory": "bool | None",
    "drop_last": "bool | None",
    "timeout": "Annotated[float, Ge(0)]",
    "worker_init_fn": "",
    "multiprocessing_context": "str | None",
    "generator": "",
    "prefetch_factor": "Annotated[int, Ge(1)] | None",
    "persistent_workers": "bool | None",
    "pin_memory_device": "str",
    "in_order": "bool | None",
    "per_device": "bool | None",
    "max_tokens": "Annotated[int, Ge(1)] | None",
    "max_sentences": "Annotated[int, Ge(1)] | None",
    "required_batch_size_multiple": "Annotated[int, Ge(1)] | None",
    "tokens_of": "str | None",
    "length_of": "Annotated[str, NotEmpty()] | Annotated[list[Annotated[str, NotEmpty()]], NotEmpty()] | None",
    "max_length": "Annotated[int, Ge(1)] | None",
    "too_long": "Literal['error', 'skip', 'truncate'] | None",
    "sort_by_length": "bool | None",
}
BATCH_BUDGETS = ("max_tokens", "max_sentences")  # each of these groups samples of similar length into batches
BUDGET_OPTIONS = ("required_batch_size_multiple", "tokens_of", "length_of", "max_length", "too_long", "sort_by_length")
_BATCHES = ("batch_size", "batch_sampler", "sampler", "drop_last")
_WORKER_OPTIONS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def check_loader_options(options: Mapping[str, object]) -> Iterator[Violation]:
    """Yield problems with combinations of loader options."""
    given = {
        key for key, value in options.items() if not (value is None or (isinstance(value, int | float) and value == 0))
    }
    budget = next((key for key in BATCH_BUDGETS if key in given), "")
    either = "remove one or the other"
    excludes = (
        ("batch_sampler", ("batch_size", "shuffle", "sampler", "drop_last"), either),
        ("sampler", ("shuffle",), "remove shuffle: the sampler determines the order"),
        (budget, _BATCHES, f"{either}; max_sentences limits the number of samples in a batch"),
    )
    for key, others, hint in excludes:
        for other in others:
            if {key, other} <= given:
                yield other, f"{key} cannot be combined with {other}", hint
    for key in _WORKER_OPTIONS:
        if key in given and "num_workers" not in given:
            yield key, f"{key} needs workers", f"set num_workers, or remove {key}"
    for key in BUDGET_OPTIONS:
        if options.get(key) is not None and not budget:
            yield key, f"{key} needs a batch budget", "set max_tokens or max_sentences"
    if "drop_last" in given and not given & {"batch_size", "batch_sampler", *BATCH_BUDGETS}:
        yield "drop_last", "drop_last needs batch_size", "set it in the pipe that builds the batches"
    if options.get("too_long") == "truncate" and not given & {"max_tokens", "max_length"}:
        yield "too_long", 'too_long = "truncate" needs a maximum length', "set max_length or max_tokens"


def _check_buffer_size(batch_size: int, buffer_size: int) -> Iterator[Violation]:
    if buffer_size < batch_size:
        yield "buffer_size", f"buffer_size must be at least batch_size = {batch_size}, not {buffer_size}", ""


def _check_truncation(long: str, max_length: int, pair: object = None) -> Iterator[Violation]:
    if long == "only_second" and not pair:
        yield "long", "long = 'only_second' needs a second text", "set pair, or use long = 'only_first'"
    if long == "windows" and (pair or not max_length):
        what = "single texts, not pairs" if pair else "a max_length, the length of a window"
        yield "long", f"long = 'windows' needs {what}", "or truncate instead, for example with long = 'only_first'"
    elif long != "refuse" and not max_length:
        yield "long", f"long = {long!r} needs a positive max_length, not {max_length}", ""


def _check_padding(
    multiple: int, max_length: int, fixed: bool, previous: str, first: int | None
) -> Iterator[Violation]:
    if max_length % multiple:
        text = f"max_length = {max_length} must be a multiple of multiple = {multiple}"
        yield "max_length", text, ""
    if fixed and not max_length:
        yield "fixed", "fixed = true pads to max_length, which is not set", ""
    if (previous == "") != (first is None):
        hint = "set the name of the field for the shifted tokens and its first token id, usually the id of <eos>"
        yield "previous", "'previous' and 'first' must be set together", hint


def _check_label_names(label_by: str, labels: object) -> Iterator[Violation]:
    if label_by == "index" and labels is None:
        yield "label_by", 'label_by = "index" needs the label names', 'for example labels = ["good", "bad"]'


def _check_indicators(marks: Sequence[str], indicators: Sequence[str] | None) -> Iterator[Violation]:
    if indicators is not None and len(indicators) != len(marks):
        yield "indicators", f"{len(indicators)} indicators for {len(marks)} marks", "set one indicator per mark"


def _check_tag_scheme(to: str, types: object, scheme: str, tags: object) -> Iterator[Violation]:
    if (to or types) and not scheme:
        yield "scheme", "'to' and 'types' need the scheme of the file", 'for example scheme = "BIO"'
    if types and tags is not None:
        yield "types", "'types' and 'tags' cannot be combined", "remove tags: the types and the scheme define them"


def _check_columns(
    path: str | list[str], source: str | int | None, target: str | int | None, columns: list[str] | None
) -> Iterator[Violation]:
    given = [key for key, value in {"source": source, "target": target}.items() if value is not None]
    if given and isinstance(path, list):
        hint = f"remove {' and '.join(given)}: the first file is the source, the second the target"
        yield given[0], f"{given[0]!r} names a column, but parallel files have none", hint
    elif len(given) == 1:
        other = "target" if given == ["source"] else "source"
        yield given[0], f"{given[0]!r} names a column, but {other!r} is not set", f"set {other} too"
    elif given and columns is not None:
        yield "columns", "'columns' cannot be combined with 'source' and 'target'", "remove one or the other"


def _check_side_names(
    path: str | list[str], names: list[str], columns: list[str] | None, format: str, delimiter: str, header: bool | None
) -> Iterator[Violation]:
    tabular = columns is not None or format or delimiter or header is not None
    if isinstance(path, list) and tabular:
        hint = "if the texts are columns of one table, set path to that file instead of a list"
        yield "path", "parallel files have no columns, format, delimiter or header", hint
    sides = len(path) if isinstance(path, list) else len(columns or names)
    if sides != len(names) or sides < 2 or len(set(names)) < sides:
        hint = "set path to a list with one file per name, or to a table with one column per name"
        yield "names", f"names must list at least two distinct names, one per file or column, not {names!r}", hint


# -- models and searches


def _check_heads(dim: int, heads: int, places: str = "") -> Iterator[Violation]:
    if dim % heads:
        yield "heads", f"dim = {dim} is not a multiple of heads = {heads}", "dim is divided evenly among the heads"
    elif places == "rotary" and dim // heads % 2:
        yield "places", f"rotary positions need an even number of features per head, not {dim // heads}", ""


def _check_shared_embeddings(share: str, source_size: int | None, target_size: int | None) -> Iterator[Violation]:
    """Check that the vocabulary sizes of shared embeddings are equal, if they are known."""
    if share == "all" and source_size is not None and target_size is not None and source_size != target_size:
        text = f"share = 'all' needs equal vocabulary sizes, not {source_size} (source) and {target_size} (target)"
        yield "share", text, 'build one vocabulary for source and target, or set share = "decoder"'


def _check_beams(beam: int, nbest: int, groups: int) -> Iterator[Violation]:
    if nbest > beam:
        yield "nbest", f"nbest = {nbest} must be at most beam = {beam}", ""
    if beam % groups:
        yield "groups", f"beam = {beam} must be a multiple of groups = {groups}", ""


def _check_length_limits(max_length: int, min_length: int) -> Iterator[Violation]:
    if max_length < min_length:
        yield "max_length", f"max_length = {max_length} must be at least min_length = {min_length}", ""


# keyed by the class whose constructor accepts the keys
RULES: dict[str, tuple[_Rule, ...]] = {
    "alchemy.stop.Time": (_check_time,),
    "alchemy.update.GradientUpdater": (_check_window,),
    "alchemy.legacy.backward.DefaultBackwardHandler": (_check_window,),
    "alchemy.sched.base.AlchemyTrainScheduler": (_check_warmup,),
    "alchemy.sched.schedules.Cosine": (_check_cosine,),
    "alchemy.optim.optimizers.SGD": (_check_nesterov,),
    "alchemy.stop.Patience": (check_monitor_name,),
    "alchemy.stop.Target": (check_monitor_name,),
    "alchemy.stop.Divergence": (check_monitor_name,),
    "alchemy.checkpoint.keeper.Checkpoints": (_check_periods, _check_optional_monitor),
    "alchemy.precision.Precision": (_check_compile_options,),
    "alchemy.pipeline.freeze.Freeze": (_check_freeze_range,),
    "alchemy.pipeline.itr.BucketBatch": (_check_buffer_size,),
    "alchemy.pipeline.encode.Texts": (_check_truncation,),
    "alchemy.pipeline.encode.Wordwise": (_check_truncation,),
    "alchemy.pipeline.processors.classification.TextClassification": (_check_label_names,),
    "alchemy.pipeline.processors.relation.Relation": (_check_label_names, _check_indicators),
    "alchemy.pipeline.processors.tagging.Tagging": (_check_tag_scheme,),
    "alchemy.pipeline.processors.parallel.ParallelText": (_check_columns, _check_side_names),
    "alchemy.tasks.text_task.TextTask": (_check_truncation,),
    "alchemy.data.columns.Padded": (_check_padding,),
    "alchemy.models.encoders.Transformer": (_check_heads,),
    "alchemy.nn.transformer.Transformer": (_check_heads, _check_shared_embeddings),
    "alchemy.generate.beam_search.BeamSearch": (_check_beams,),
    "alchemy.generate.generator.Limits": (_check_length_limits,),
}
