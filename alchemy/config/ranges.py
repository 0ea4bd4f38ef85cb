"""Numbers out of their range, said in the words of the part that would refuse them when it is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from alchemy.config.slots import Layout, Slot, entries, entry, is_table, where
from alchemy.errors import Problem, did_you_mean

UNITS = ("updates", "epochs", "minutes")
COMPILE = ("fullgraph", "dynamic", "backend", "mode", "options", "disable")

AT_LEAST = {
    **dict.fromkeys(("period", "epochs", "batch_size", "buffer_size", "num_training_steps", "step_size"), 1),
    **dict.fromkeys(("t_0", "t_max", "t_mult", "updates", "tokens", "rows"), 1),
    "num_warmup_steps": 0,
}


def out_of_range(layout: Layout) -> Iterator[Problem]:
    for slot in layout.slots:
        if slot.part is not None and not slot.part.ours:
            continue  # in a project's part, 0 may mean "off"
        yield from _too_small(slot)
        if slot.kind in BY_KIND and slot.parent is None:
            yield from BY_KIND[slot.kind](slot)


def _too_small(slot: Slot) -> Iterator[Problem]:
    for key, least in AT_LEAST.items():
        value = entry(slot.table, key, None)
        if is_number(value) and not value >= least and not (key == "epochs" and value > 0):
            yield slot.problem(f"{key} must be at least {least}, not {value}", key)


def _checkpoint(slot: Slot) -> Iterator[Problem]:
    every = slot.value("every")
    for unit, number in entries(every if is_table(every) else {"updates": every}):
        known = unit not in UNITS or is_number(number)  # what is no number at all is said with its type
        wrong = wrong_period(unit, number) if known else None
        if wrong is not None:
            yield slot.problem(wrong[0], "every", hint=wrong[1])
    for key, least in (("best", 0), ("last", 1)):
        value = slot.value(key)
        if is_number(value) and value < least:
            yield slot.problem(f"{key} = {value!r}", key, hint=f"give a whole number, {least} or more")


def wrong_period(unit: str, number: Any) -> tuple[str, str] | None:
    """What is wrong with one entry of `checkpoint.every`, and how to mend it."""
    if unit not in UNITS:
        return f"every takes no {unit!r}", did_you_mean(unit, UNITS) or f"it takes {', '.join(UNITS)}"
    whole = isinstance(number, int) and not isinstance(number, bool) and number >= 1
    if whole or (unit == "minutes" and isinstance(number, float) and 0 < number < math.inf):
        return None
    what = "a number of minutes above 0" if unit == "minutes" else f"a whole number of {unit}, 1 or more"
    return f"every {unit} = {number!r}", f"give {what}"


def _average(slot: Slot) -> Iterator[Problem]:
    decay, every, start = slot.value("decay"), slot.value("every"), slot.value("start")
    if is_number(decay) and not 0 <= decay < 1:
        yield slot.problem(f"decay is {decay}", "decay", hint="give a number from 0 to below 1, as 0.999")
    if slot.is_a("SWA") and is_number(start) and not is_start(start):
        yield slot.problem(f"start is {start}", "start", hint=START)
    start = 0 if slot.is_a("SWA") else start
    if is_number(every) and is_number(start) and (every < 1 or start < 0):
        text, hint = f"every is {every} and start is {start}", "every is 1 or more, start 0 or more"
        yield slot.problem(text, "every" if every < 1 else "start", hint=hint)


START = "give a number of updates, or a share of the training between 0 and 1"


def is_start(start: float) -> bool:
    """Whether a plain average can begin there: at an update, or after a share of the training."""
    return 0 <= start < math.inf and (start < 1 or start == int(start))


def _backward(slot: Slot) -> Iterator[Problem]:
    window, period = slot.value("window"), slot.value("period")
    if not is_number(window):
        return
    if window < 1:
        yield slot.problem(f"window is {window!r}", "window", hint="give a whole number of steps, 1 or more")
    elif is_number(period) and period > 1:
        text = f"window = {window} stands beside period = {period}"
        yield slot.problem(text, "window", hint="give period or window, not both")


def _stop_rule(slot: Slot) -> Iterator[Problem]:
    parts = [slot.value(key) for key in ("hours", "minutes", "seconds")]
    if slot.is_a("Time") and any(parts) and all(map(is_number, parts)):
        seconds = parts[0] * 3600 + parts[1] * 60 + parts[2]
        if not seconds > 0:
            yield slot.problem(f"hours, minutes and seconds must be above 0, not {seconds}")
    for key in ("lr", "value", "limit", "min_delta"):
        value = entry(slot.table, key, None)
        if is_number(value) and math.isnan(value):
            yield slot.problem(f"{key} must be a number, not {value}", key)
    delta, factor = slot.value("min_delta"), slot.value("factor")
    if is_number(delta) and delta < 0:
        yield slot.problem(f"min_delta must not be negative, but is {delta}", "min_delta")
    if is_number(factor) and not factor > 1:
        yield slot.problem(f"factor must be above 1, not {factor}", "factor", hint="inf leaves only limit and NaN")


def _precision(slot: Slot) -> Iterator[Problem]:
    scale, every, options = slot.value("scale"), slot.value("scale_every"), slot.value("compile")
    if is_number(scale) and is_number(every) and (not 0 < scale < math.inf or every < 1):
        text, hint = f"scale is {scale} and scale_every {every}", "give a finite scale above 0, and 1 or more updates"
        yield slot.problem(text, "scale_every" if every < 1 else "scale", hint=hint)
    for key in options if is_table(options) else ():
        if key not in COMPILE:
            hint = did_you_mean(key, COMPILE) or f"it takes {', '.join(COMPILE)}"
            yield Problem(f"torch.compile takes no {key!r}", where(options, key), f"{slot.section}.compile", hint)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


BY_KIND: dict[str, Callable[[Slot], Iterator[Problem]]] = {
    "checkpoint": _checkpoint,
    "average": _average,
    "backward": _backward,
    "stop rule": _stop_rule,
    "precision": _precision,
}
