"""Rules across the keys of one part, each of which fits by itself; the check and the constructor ask the same ones."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from alchemy.errors import did_you_mean

Broken = tuple[str, str, str]  # the key that is to blame, what is wrong, how to fix it
Rule = Callable[[Mapping[str, Any]], Iterator[Broken]]


def broken(dotted: str, values: Mapping[str, Any]) -> Iterator[Broken]:
    """What is wrong with the values of a part's constructor, defaults included, when each of them fits by itself."""
    for rule in RULES.get(dotted, ()):
        with contextlib.suppress(KeyError):  # a subclass whose constructor does not take these keys
            yield from list(rule(values))


# -- training


def _has_a_time(values: Mapping[str, Any]) -> Iterator[Broken]:
    if not any(values[key] for key in ("hours", "minutes", "seconds")):
        yield "hours", "Time does not say how long", "set hours, minutes or seconds"


def _period_or_window(values: Mapping[str, Any]) -> Iterator[Broken]:
    window, period = values["window"], values["period"]
    if window is not None and period != 1:
        yield "window", f"window = {window} stands beside period = {period}", "give period or window, not both"


def _one_kind_of_wave(values: Mapping[str, Any]) -> Iterator[Broken]:
    given = [key for key in ("t_max", "restarts", "t_0") if values[key]]
    if len(given) > 1:
        yield given[-1], "Cosine takes one of t_max, restarts and t_0", "remove the others"


def _starts_before_it_ends(values: Mapping[str, Any]) -> Iterator[Broken]:
    start, until = values["start"], values["until"]
    if until is not None and until <= start:
        yield "until", f"start is {start} and until is {until}", "give updates, with start before until"


def _nesterov_has_momentum(values: Mapping[str, Any]) -> Iterator[Broken]:
    if values["nesterov"] and (not values["momentum"] or values["dampening"]):
        yield "nesterov", "nesterov needs a momentum, and no dampening", "set momentum = 0.9, or remove nesterov"


def _known_periods(values: Mapping[str, Any]) -> Iterator[Broken]:
    """`every = 500` counts updates; a table names its units."""
    every = values["every"]
    for unit, number in every.items() if isinstance(every, Mapping) else (("updates", every),):
        whole = isinstance(number, int) and number >= 1
        if unit not in UNITS:
            yield "every", f"every takes no {unit!r}", did_you_mean(unit, UNITS) or f"it takes {', '.join(UNITS)}"
        elif unit == "minutes" and not 0 < number < math.inf:
            yield "every", f"every minutes = {number!r}", "give a number of minutes above 0"
        elif unit != "minutes" and not whole:
            yield "every", f"every {unit} = {number!r}", f"give a whole number of {unit}, 1 or more"


def _known_compile_options(values: Mapping[str, Any]) -> Iterator[Broken]:
    options = values["compile"]
    for key in options if isinstance(options, Mapping) else ():
        if key not in COMPILE:
            hint = did_you_mean(key, COMPILE) or f"it takes {', '.join(COMPILE)}"
            yield "compile", f"torch.compile takes no {key!r}", hint


UNITS = ("updates", "epochs", "minutes")
COMPILE = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")


# -- data


def _buffer_holds_a_batch(values: Mapping[str, Any]) -> Iterator[Broken]:
    batch, buffer = values["batch_size"], values["buffer_size"]
    if buffer < batch:
        yield "buffer_size", f"buffer_size must be at least batch_size = {batch}, not {buffer}", ""


def _cuts_to_a_length(values: Mapping[str, Any]) -> Iterator[Broken]:
    long = values["long"]
    if long == "only_second" and not values.get("pair"):
        yield "long", "long = 'only_second' needs a second text", "give `pair`, or cut 'only_first'"
    if long == "windows" and (values.get("pair") or not values["max_length"]):
        what = "one text, not pairs" if values.get("pair") else "a max_length, that of a window"
        yield "long", f"long = 'windows' needs {what}", "or say what is cut"
    elif long != "refuse" and not values["max_length"]:
        yield "long", f"long = {long!r} needs a max_length, not {values['max_length']}", ""


def _pads_to_a_length(values: Mapping[str, Any]) -> Iterator[Broken]:
    multiple, longest = values["multiple"], values["max_length"]
    if longest % multiple:
        text = f"max_length = {longest} is no multiple of {multiple}, to which rows are padded"
        yield "max_length", text, ""
    if values["fixed"] and not longest:
        yield "fixed", "fixed pads to max_length, which is not given", ""
    if (values["previous"] == "") != (values["first"] is None):
        hint = "name the field of the shifted tokens, and the id that stands first in it, mostly that of <eos>"
        yield "previous", "'previous' and 'first' go together", hint


def _indices_have_names(values: Mapping[str, Any]) -> Iterator[Broken]:
    if values["label_by"] == "index" and values["labels"] is None:
        yield "label_by", 'label_by = "index" needs the names of the labels', 'give labels = ["good", "bad"]'


def _marks_have_indicators(values: Mapping[str, Any]) -> Iterator[Broken]:
    marks, indicators = values["marks"], values["indicators"]
    if indicators is not None and len(indicators) != len(marks):
        yield "indicators", f"{len(indicators)} indicators for {len(marks)} marks", "give one for each mark"


def _tags_have_a_scheme(values: Mapping[str, Any]) -> Iterator[Broken]:
    if (values["to"] or values["types"]) and not values["scheme"]:
        yield "scheme", "'to' and 'types' need the scheme of the file", 'give scheme = "BIO"'
    if values["types"] and values["tags"] is not None:
        yield "types", "'types' and 'tags' exclude each other", "the scheme makes the tags of the types"


def _sides_have_names(values: Mapping[str, Any]) -> Iterator[Broken]:
    path, names, columns = values["path"], values["names"], values["columns"]
    tabular = columns is not None or values["format"] or values["delimiter"] or values["header"] is not None
    if isinstance(path, list) and tabular:
        hint = "give one file as path, without a list, for a table with a column a side"
        yield "path", "files side by side have no columns, format, delimiter or header", hint
    sides = len(path) if isinstance(path, list) else len(columns or names)
    if sides != len(names) or sides < 2 or len(set(names)) < sides:
        hint = "give a list of files with one for each side, and a name for each"
        yield "names", f"{sides} sides have the names {', '.join(map(repr, names))}", hint


# -- models and searches


def _heads_share_features(values: Mapping[str, Any]) -> Iterator[Broken]:
    dim, heads = values["dim"], values["heads"]
    if dim % heads:
        yield "heads", f"dim = {dim} is no multiple of heads = {heads}", "each head takes an equal share"
    elif values.get("places") == "rotary" and dim // heads % 2:
        yield "places", f"rotary places turn pairs of features, and a head has {dim // heads}", ""


def _shared_tables_are_equal(values: Mapping[str, Any]) -> Iterator[Broken]:
    """The sizes are those of the tokenizers; the check may not know them."""
    source, target = values["source_size"], values["target_size"]
    if values["share"] == "all" and source is not None and target is not None and source != target:
        text = f"all tables are to be one, and the source has {source} tokens, the target {target}"
        yield "share", text, 'build one vocabulary for both sides, or set share = "decoder"'


def _beams_are_shared(values: Mapping[str, Any]) -> Iterator[Broken]:
    beam, nbest, groups = values["beam"], values["nbest"], values["groups"]
    if nbest > beam:
        yield "nbest", f"nbest = {nbest} must be at most beam = {beam}", ""
    if beam % groups:
        yield "groups", f"beam = {beam} must be a multiple of groups = {groups}", ""


def _texts_have_room(values: Mapping[str, Any]) -> Iterator[Broken]:
    most, least = values["max_length"], values["min_length"]
    if most < least:
        yield "max_length", f"max_length = {most} must be at least min_length = {least}", ""


# by the class whose constructor takes the keys
RULES: dict[str, tuple[Rule, ...]] = {
    "alchemy.stop.Time": (_has_a_time,),
    "alchemy.update.GradientUpdater": (_period_or_window,),
    "alchemy.legacy.backward.DefaultBackwardHandler": (_period_or_window,),
    "alchemy.sched.parts.Cosine": (_one_kind_of_wave,),
    "alchemy.optim.parts.SGD": (_nesterov_has_momentum,),
    "alchemy.checkpoint.keeper.Checkpoints": (_known_periods,),
    "alchemy.precision.Precision": (_known_compile_options,),
    "alchemy.pipeline.freeze.Freeze": (_starts_before_it_ends,),
    "alchemy.pipeline.itr.BucketBatch": (_buffer_holds_a_batch,),
    "alchemy.pipeline.encode.Texts": (_cuts_to_a_length,),
    "alchemy.pipeline.encode.Wordwise": (_cuts_to_a_length,),
    "alchemy.pipeline.processors.classification.TextClassification": (_indices_have_names,),
    "alchemy.pipeline.processors.relation.Relation": (_indices_have_names, _marks_have_indicators),
    "alchemy.pipeline.processors.tagging.Tagging": (_tags_have_a_scheme,),
    "alchemy.pipeline.processors.parallel.ParallelText": (_sides_have_names,),
    "alchemy.tasks.text.TextTask": (_cuts_to_a_length,),
    "alchemy.data.columns.Padded": (_pads_to_a_length,),
    "alchemy.models.encoders.Transformer": (_heads_share_features,),
    "alchemy.nn.transformer.Transformer": (_heads_share_features, _shared_tables_are_equal),
    "alchemy.generate.beam.BeamSearch": (_beams_are_shared,),
    "alchemy.generate.writer.Limits": (_texts_have_room,),
}
