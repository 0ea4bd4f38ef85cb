"""Rules across keys, each of which fits by itself; the check and the code that takes the keys ask the same ones.

A rule is a function whose parameters are the keys that it is about; those with a default need not be there.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from alchemy.errors import did_you_mean

Broken = tuple[str, str, str]  # the key that is to blame, what is wrong, how to fix it
_Rule = Callable[..., Iterator[Broken]]


def broken(dotted: str, values: Mapping[str, object]) -> Iterator[Broken]:
    """What is wrong with the values of a part's constructor, defaults included, when each of them fits by itself."""
    for rule in RULES.get(dotted, ()):
        keys = _keys(rule)
        if all(key in values for key, required in keys.items() if required):
            yield from rule(**{key: values[key] for key in keys if key in values})


@cache
def _keys(rule: _Rule) -> dict[str, bool]:
    """The keys that a rule asks for, and whether it can do without."""
    return {name: row.default is row.empty for name, row in inspect.signature(rule).parameters.items()}


# -- training


def _has_a_time(hours: float, minutes: float, seconds: float) -> Iterator[Broken]:
    if not (hours or minutes or seconds):
        yield "hours", "Time does not say how long", "set hours, minutes or seconds"


def _share_or_number(num_warmup_steps: float) -> Iterator[Broken]:
    if num_warmup_steps > 1 and num_warmup_steps % 1:
        text = f"num_warmup_steps = {num_warmup_steps} is neither a share of the training nor a whole number"
        yield "num_warmup_steps", text, f"write a share below 1, or {round(num_warmup_steps)}"


def _period_or_window(window: int | None, period: int) -> Iterator[Broken]:
    if window is not None and period != 1:
        yield "window", f"window = {window} stands beside period = {period}", "give period or window, not both"


def _one_kind_of_wave(t_max: int | None, restarts: int | None, t_0: int | None) -> Iterator[Broken]:
    given = [key for key, value in {"t_max": t_max, "restarts": restarts, "t_0": t_0}.items() if value]
    if len(given) > 1:
        yield given[-1], "Cosine takes one of t_max, restarts and t_0", "remove the others"


def monitor_names_a_split(monitor: str) -> Iterator[Broken]:
    """A number that is watched is named like `dev/f1`."""
    split, _, name = monitor.partition("/")
    if not split or not name:
        word = monitor.strip("/") or "loss"
        usual = {"train": "train/loss", "dev": "dev/accuracy' or 'dev/loss", "test": "test/accuracy' or 'test/loss"}
        text = f"monitor = {monitor!r} does not name a split and a number of it"
        yield "monitor", text, f"write it like '{usual.get(word, f'dev/{word}')}'"


def _best_names_a_split(monitor: str) -> Iterator[Broken]:
    return monitor_names_a_split(monitor) if monitor else iter(())


def _starts_before_it_ends(start: int, until: int | None) -> Iterator[Broken]:
    if until is not None and until <= start:
        yield "until", f"start is {start} and until is {until}", "give updates, with start before until"


def _nesterov_has_momentum(nesterov: bool, momentum: float, dampening: float) -> Iterator[Broken]:
    if nesterov and (not momentum or dampening):
        yield "nesterov", "nesterov needs a momentum, and no dampening", "set momentum = 0.9, or remove nesterov"


def _known_periods(every: float | Mapping[str, float]) -> Iterator[Broken]:
    """`every = 500` counts updates; a table names its units."""
    for unit, number in every.items() if isinstance(every, Mapping) else (("updates", every),):
        whole = isinstance(number, int) and number >= 1
        if unit not in _UNITS:
            yield "every", f"every takes no {unit!r}", did_you_mean(unit, _UNITS) or f"it takes {', '.join(_UNITS)}"
        elif unit == "minutes" and not 0 < number < math.inf:
            yield "every", f"every minutes = {number!r}", "give a number of minutes above 0"
        elif unit != "minutes" and not whole:
            yield "every", f"every {unit} = {number!r}", f"give a whole number of {unit}, 1 or more"


def _known_compile_options(compile: bool | Mapping[str, object]) -> Iterator[Broken]:
    for key in compile if isinstance(compile, Mapping) else ():
        if key not in _COMPILE:
            hint = did_you_mean(key, _COMPILE) or f"it takes {', '.join(_COMPILE)}"
            yield "compile", f"torch.compile takes no {key!r}", hint


_UNITS = ("updates", "epochs", "minutes")
_COMPILE = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")


# -- data

# what the loader takes: torch's arguments and our own, with the annotation to check against
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
BATCH_BUDGETS = ("max_tokens", "max_sentences")  # either makes batches of samples of like length
BUDGET_OPTIONS = ("required_batch_size_multiple", "tokens_of", "length_of", "max_length", "too_long", "sort_by_length")
_BATCHES = ("batch_size", "batch_sampler", "sampler", "drop_last")
_OF_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")


def broken_options(options: Mapping[str, object]) -> Iterator[Broken]:
    """What is wrong with the options of a loader together."""
    given = {
        key for key, value in options.items() if not (value is None or (isinstance(value, int | float) and value == 0))
    }
    budget = next((key for key in BATCH_BUDGETS if key in given), "")
    either = "remove one or the other"
    excludes = (
        ("batch_sampler", ("batch_size", "shuffle", "sampler", "drop_last"), either),
        ("sampler", ("shuffle",), "remove shuffle: the sampler decides about the order"),
        (budget, _BATCHES, f"{either}; max_sentences limits the samples of a batch"),
    )
    for key, others, hint in excludes:
        yield from ((other, f"{key} excludes {other}", hint) for other in others if {key, other} <= given)
    for key in _OF_WORKERS:
        if key in given and "num_workers" not in given:
            yield key, f"{key} needs workers", f"set num_workers, or remove {key}"
    for key in BUDGET_OPTIONS:
        if options.get(key) is not None and not budget:
            yield key, f"{key} needs a budget", "give max_tokens, or max_sentences"
    if "drop_last" in given and not given & {"batch_size", "batch_sampler", *BATCH_BUDGETS}:
        yield "drop_last", "drop_last needs batch_size", "give it to the pipe that makes the batches"
    if options.get("too_long") == "truncate" and not given & {"max_tokens", "max_length"}:
        yield "too_long", 'too_long = "truncate" needs to know at what length', "give max_length, or max_tokens"


def _buffer_holds_a_batch(batch_size: int, buffer_size: int) -> Iterator[Broken]:
    if buffer_size < batch_size:
        yield "buffer_size", f"buffer_size must be at least batch_size = {batch_size}, not {buffer_size}", ""


def _cuts_to_a_length(long: str, max_length: int, pair: object = None) -> Iterator[Broken]:
    if long == "only_second" and not pair:
        yield "long", "long = 'only_second' needs a second text", "give `pair`, or cut 'only_first'"
    if long == "windows" and (pair or not max_length):
        what = "one text, not pairs" if pair else "a max_length, that of a window"
        yield "long", f"long = 'windows' needs {what}", "or say what is cut"
    elif long != "refuse" and not max_length:
        yield "long", f"long = {long!r} needs a max_length, not {max_length}", ""


def _pads_to_a_length(
    multiple: int, max_length: int, fixed: bool, previous: str, first: int | None
) -> Iterator[Broken]:
    if max_length % multiple:
        text = f"max_length = {max_length} is no multiple of {multiple}, to which rows are padded"
        yield "max_length", text, ""
    if fixed and not max_length:
        yield "fixed", "fixed pads to max_length, which is not given", ""
    if (previous == "") != (first is None):
        hint = "name the field of the shifted tokens, and the id that stands first in it, mostly that of <eos>"
        yield "previous", "'previous' and 'first' go together", hint


def _indices_have_names(label_by: str, labels: object) -> Iterator[Broken]:
    if label_by == "index" and labels is None:
        yield "label_by", 'label_by = "index" needs the names of the labels', 'give labels = ["good", "bad"]'


def _marks_have_indicators(marks: Sequence[str], indicators: Sequence[str] | None) -> Iterator[Broken]:
    if indicators is not None and len(indicators) != len(marks):
        yield "indicators", f"{len(indicators)} indicators for {len(marks)} marks", "give one for each mark"


def _tags_have_a_scheme(to: str, types: object, scheme: str, tags: object) -> Iterator[Broken]:
    if (to or types) and not scheme:
        yield "scheme", "'to' and 'types' need the scheme of the file", 'give scheme = "BIO"'
    if types and tags is not None:
        yield "types", "'types' and 'tags' exclude each other", "the scheme makes the tags of the types"


def _columns_of_both_sides(
    path: str | list[str], source: str | int | None, target: str | int | None, columns: list[str] | None
) -> Iterator[Broken]:
    given = [key for key, value in {"source": source, "target": target}.items() if value is not None]
    if given and isinstance(path, list):
        hint = f"leave out {' and '.join(given)}: the first file is the source, the second the target"
        yield given[0], f"{given[0]!r} names a column, and files side by side have none", hint
    elif len(given) == 1:
        other = "target" if given == ["source"] else "source"
        yield given[0], f"{given[0]!r} names a column, and nothing names that of the {other}", f"set {other}, too"
    elif given and columns is not None:
        yield "columns", "'columns' stands beside 'source' and 'target'", "give one or the other"


def _sides_have_names(
    path: str | list[str], names: list[str], columns: list[str] | None, format: str, delimiter: str, header: bool | None
) -> Iterator[Broken]:
    tabular = columns is not None or format or delimiter or header is not None
    if isinstance(path, list) and tabular:
        hint = "give one file as path, without a list, for a table with a column a side"
        yield "path", "files side by side have no columns, format, delimiter or header", hint
    sides = len(path) if isinstance(path, list) else len(columns or names)
    if sides != len(names) or sides < 2 or len(set(names)) < sides:
        hint = "give a list of files with one for each side, and a name for each"
        yield "names", f"{sides} sides have the names {', '.join(map(repr, names))}", hint


# -- models and searches


def _heads_share_features(dim: int, heads: int, places: str = "") -> Iterator[Broken]:
    if dim % heads:
        yield "heads", f"dim = {dim} is no multiple of heads = {heads}", "each head takes an equal share"
    elif places == "rotary" and dim // heads % 2:
        yield "places", f"rotary places turn pairs of features, and a head has {dim // heads}", ""


def _shared_tables_are_equal(share: str, source_size: int | None, target_size: int | None) -> Iterator[Broken]:
    """The sizes are those of the tokenizers; the check may not know them."""
    if share == "all" and source_size is not None and target_size is not None and source_size != target_size:
        text = f"all tables are to be one, and the source has {source_size} tokens, the target {target_size}"
        yield "share", text, 'build one vocabulary for both sides, or set share = "decoder"'


def _beams_are_shared(beam: int, nbest: int, groups: int) -> Iterator[Broken]:
    if nbest > beam:
        yield "nbest", f"nbest = {nbest} must be at most beam = {beam}", ""
    if beam % groups:
        yield "groups", f"beam = {beam} must be a multiple of groups = {groups}", ""


def _texts_have_room(max_length: int, min_length: int) -> Iterator[Broken]:
    if max_length < min_length:
        yield "max_length", f"max_length = {max_length} must be at least min_length = {min_length}", ""


# by the class whose constructor takes the keys
RULES: dict[str, tuple[_Rule, ...]] = {
    "alchemy.stop.Time": (_has_a_time,),
    "alchemy.update.GradientUpdater": (_period_or_window,),
    "alchemy.legacy.backward.DefaultBackwardHandler": (_period_or_window,),
    "alchemy.sched.base.AlchemyTrainScheduler": (_share_or_number,),
    "alchemy.sched.schedules.Cosine": (_one_kind_of_wave,),
    "alchemy.optim.optimizers.SGD": (_nesterov_has_momentum,),
    "alchemy.stop.Patience": (monitor_names_a_split,),
    "alchemy.stop.Target": (monitor_names_a_split,),
    "alchemy.stop.Divergence": (monitor_names_a_split,),
    "alchemy.checkpoint.keeper.Checkpoints": (_known_periods, _best_names_a_split),
    "alchemy.precision.Precision": (_known_compile_options,),
    "alchemy.pipeline.freeze.Freeze": (_starts_before_it_ends,),
    "alchemy.pipeline.itr.BucketBatch": (_buffer_holds_a_batch,),
    "alchemy.pipeline.encode.Texts": (_cuts_to_a_length,),
    "alchemy.pipeline.encode.Wordwise": (_cuts_to_a_length,),
    "alchemy.pipeline.processors.classification.TextClassification": (_indices_have_names,),
    "alchemy.pipeline.processors.relation.Relation": (_indices_have_names, _marks_have_indicators),
    "alchemy.pipeline.processors.tagging.Tagging": (_tags_have_a_scheme,),
    "alchemy.pipeline.processors.parallel.ParallelText": (_columns_of_both_sides, _sides_have_names),
    "alchemy.tasks.text_task.TextTask": (_cuts_to_a_length,),
    "alchemy.data.columns.Padded": (_pads_to_a_length,),
    "alchemy.models.encoders.Transformer": (_heads_share_features,),
    "alchemy.nn.transformer.Transformer": (_heads_share_features, _shared_tables_are_equal),
    "alchemy.generate.beam_search.BeamSearch": (_beams_are_shared,),
    "alchemy.generate.generator.Limits": (_texts_have_room,),
}
