"""The next point from the Sobol sequence of torch, Optuna's TPE, or CMA-ES, rebuilt from the points so far."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from alchemy.config.toml_writer import format_inline
from alchemy.files import hash_text
from alchemy.optional_packages import import_package
from alchemy.sweep.space import Choice, Dimension, Point, Range, Space, Value, is_active

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, Trial

    from alchemy.sweep.proposers import History

SIGMA = 0.2  # initial step size of CMA-ES, in parts of a range


def propose_sobol(space: Space, seed: str, history: History, trials: int) -> Point:
    """The Sobol sequence, scrambled by the seed: its points fill the space evenly."""
    base, _, attempt = seed.partition("/")
    torch = import_package("torch", "the method sobol")
    engine = torch.quasirandom.SobolEngine(len(space.dimensions), scramble=True, seed=_number(base))
    *_, drawn = engine.draw(len(history) + int(attempt) + 1, dtype=torch.float64).tolist()
    return space.build_point(drawn)


def propose_tpe(space: Space, seed: str, history: History, trials: int) -> Point:
    """Optuna's tree-structured Parzen estimator; the first ten points are random."""
    optuna = import_optuna()
    from optuna.trial import TrialState

    sampler = optuna.samplers.TPESampler(seed=_number(seed, len(history)), constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    study.add_trials(
        [
            build_trial(space, point, value, TrialState.RUNNING if value is None else TrialState.COMPLETE)
            for point, value in history
        ]
    )
    trial = study.ask()
    point: Point = {}
    for dimension in space.dimensions:
        if is_active(dimension, point):
            point[dimension.key] = _suggest(trial, dimension)
    return point


def _suggest(trial: Trial, dimension: Dimension) -> Value:
    """Return the value of a key that Optuna chooses."""
    key = dimension.key
    if isinstance(dimension, Range):
        if dimension.integer:
            return trial.suggest_int(key, int(dimension.low), int(dimension.high), log=dimension.log)
        drawn = trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log)
        return dimension.from_unit(dimension.to_unit(drawn))
    if isinstance(dimension.values, range):
        return trial.suggest_int(key, dimension.values[0], dimension.values[-1], step=dimension.values.step)
    texts = [_to_optuna(value) for value in dimension.values]
    return dimension.values[texts.index(trial.suggest_categorical(key, texts))]


def propose_cmaes(space: Space, seed: str, history: History, trials: int) -> Point:
    """CMA-ES on the numbers without a condition; all other keys are random.

    Every full population of evaluated points, in order, is one generation.
    """
    cmaes, np = import_package("cmaes", "the method cmaes"), import_package("numpy", "the method cmaes")
    numeric = [own for own in space.dimensions if own.is_numeric and not own.when]
    bounds = np.tile([0.0, 1.0], (len(numeric), 1))
    optimizer = cmaes.CMA(mean=np.full(len(numeric), 0.5), sigma=SIGMA, bounds=bounds, seed=_number(seed))
    known = [(point, value) for point, value in history if value is not None]
    size = optimizer.population_size
    for start in range(0, len(known) - size + 1, size):
        batch = known[start : start + size]
        places = [np.array([own.to_unit(point[own.key]) for own in numeric]) for point, _ in batch]
        optimizer.tell([(place, value) for place, (_, value) in zip(places, batch, strict=True)])
    optimizer.reseed_rng(_number(seed, len(history)))
    drawn = dict(zip((own.key for own in numeric), optimizer.ask().tolist(), strict=True))
    numbers = random.Random(_number(seed, len(history), "rest"))
    return space.build_point([drawn.get(own.key, numbers.random()) for own in space.dimensions])


def _number(*parts: object) -> int:
    """Return a seed that depends on all parts."""
    return int(hash_text("/".join(map(str, parts)))[:8], 16)


def import_optuna() -> Any:
    """Import Optuna, without its messages about each trial."""
    optuna = import_package("optuna", "this sweep")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _to_distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(dimension, Choice):
        if isinstance(dimension.values, range):
            return IntDistribution(dimension.values[0], dimension.values[-1], step=dimension.values.step)
        return CategoricalDistribution([_to_optuna(value) for value in dimension.values])
    if dimension.integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _to_optuna(value: object) -> Any:
    """Optuna knows no lists."""
    return format_inline(value) if isinstance(value, list) else value


def build_trial(space: Space, point: Point, value: float | None, state: Any, **more: Any) -> FrozenTrial:
    """Return a point as a trial of Optuna."""
    from optuna.trial import create_trial

    used = [dimension for dimension in space.dimensions if dimension.key in point]
    return create_trial(
        state=state,
        value=value,
        params={own.key: _to_optuna(point[own.key]) for own in used},
        distributions={own.key: _to_distribution(own) for own in used},
        **more,
    )
