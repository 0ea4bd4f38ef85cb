"""What a sweep has found: the best point, whether it is better than the second, and which keys matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from alchemy.analysis.compare import describe_difference
from alchemy.analysis.statistics import paired_test
from alchemy.config.toml_writer import format_inline
from alchemy.index.value_format import format_number
from alchemy.sweep.space import Choice, Dimension, Value
from alchemy.sweep.study import Study, Trial

BINS = 4  # groups of equal size, for the importance of a range
FEWEST = 6  # points, before importance means anything


def compare_best(study: Study) -> str:
    """Return whether the best point is better than the second by more than the noise of the seeds, as a sentence."""
    ranked = study.rank_trials()
    if len(ranked) < 2:
        return ""
    best, second = ranked[:2]
    labels = f"point {best.number}", f"point {second.number}"
    if len(best.values) < 2:
        moved = abs(_value(best) - _value(second))
        if not moved:
            return f"{labels[0]} and {labels[1]} have the same {study.plan.metric}, with one seed per point"
        return (
            f"{labels[0]} is ahead of {labels[1]} by {moved:.3g} on {study.plan.metric}, but with one seed per point, "
            "this may be noise; sweep the values of the best points again with --seeds 3 and another --name"
        )
    one, other = ([trial.values[seed] for seed in best.values] for trial in (best, second))
    return describe_difference(study.plan.metric, labels, paired_test(one, other), lower=study.is_minimized)


def measure_importance(study: Study) -> dict[str, float]:
    """Return, for each key, the share of the variance of the values that it explains alone, the largest first.

    The points are grouped by their value of the key, or into quarters of its range. The share is corrected for chance
    (epsilon squared), so that a key without effect has about 0. Keys with too few points are left out. A key with a
    condition can explain only the variance among the points that have it.
    """
    found: dict[str, float] = {}
    ranked = study.rank_trials()
    total = _sum_squares([_value(trial) for trial in ranked])
    for dimension in study.space.dimensions:
        trials = [trial for trial in ranked if dimension.key in trial.point]
        if (share := _explain_variance(_group(dimension, trials))) is not None:
            found[dimension.key] = share * _sum_squares([_value(trial) for trial in trials]) / total if total else 0.0
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _group(dimension: Dimension, trials: Sequence[Trial]) -> list[list[float]]:
    groups: dict[object, list[float]] = {}
    if isinstance(dimension, Choice) and len(dimension.values) <= 2 * BINS:
        for trial in trials:
            groups.setdefault(dimension.values.index(trial.point[dimension.key]), []).append(_value(trial))
    else:
        ordered = sorted(trials, key=lambda trial: dimension.to_unit(trial.point[dimension.key]))
        for place, trial in enumerate(ordered):
            groups.setdefault(place * BINS // len(ordered), []).append(_value(trial))
    return list(groups.values())


def _value(trial: Trial) -> float:
    assert trial.value is not None
    return trial.value


def _explain_variance(groups: Sequence[Sequence[float]]) -> float | None:
    """Return epsilon squared; None if there are too few values.

    >>> _explain_variance([[1.0, 1.1, 0.9], [5.0, 5.1, 4.9]]) > 0.99, _explain_variance([[1.0, 2.0, 3.0]] * 2)
    (True, 0.0)
    """
    values = [value for group in groups for value in group]
    count, kinds = len(values), len(groups)
    if count < FEWEST or kinds < 2 or count <= kinds:
        return None
    total = _sum_squares(values)
    inside = math.fsum(map(_sum_squares, groups))
    if total == 0:
        return 0.0
    return min(max(1 - (inside / (count - kinds)) / (total / (count - 1)), 0.0), 1.0)


def _sum_squares(values: Sequence[float]) -> float:
    mean = fmean(values) if values else 0.0
    return math.fsum((value - mean) ** 2 for value in values)


def shorten_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest end of each key that means only this key; the one of a `type` says of which part.

    >>> list(shorten_keys(["optim.lr", "optim.type", "model.hidden", "encoder.hidden"]).values())
    ['lr', 'optim.type', 'model.hidden', 'encoder.hidden']
    """
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = [".".join(parts[place:]) for place in reversed(range(len(parts)))]
        unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1)
        found[key] = next((end for end in unique if end != "type"), key)
    return found


def format_value(value: Value) -> str:
    if isinstance(value, float):
        return format_number(value)
    return value if isinstance(value, str) else format_inline(value)


def shorten_path(text: str) -> str:
    """Return the last name of an import path, and any other text as it is.

    >>> shorten_path("torch.optim.SGD"), shorten_path("0.5")
    ('SGD', '0.5')
    """
    name = text.rpartition(".")[2]
    return name if name.isidentifier() else text
