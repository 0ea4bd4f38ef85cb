"""What `alchemy sweep` prints: the points of a sweep, the best one with its command, and which keys matter."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

from alchemy.cli.options import print_json
from alchemy.cli.plot import check_picture, print_plot, write_plot
from alchemy.cli.table_format import fit_table, print_table
from alchemy.config.secrets import hide_words
from alchemy.errors import AlchemyError, printable
from alchemy.index.listing import summarize_values
from alchemy.index.value_format import format_count
from alchemy.queue import Queue
from alchemy.queue.entry import HELD, RUNNING, WAITING
from alchemy.sweep.check_space import build_overrides
from alchemy.sweep.plots import build_sweep_plot
from alchemy.sweep.results import compare_best, format_value, measure_importance, shorten_keys, shorten_path
from alchemy.sweep.study import Study, Trial, find_study, list_studies, sweeps_folder

MOST_COUNTED = 10_000  # points of a grid


def show_sweep(args: argparse.Namespace) -> int:
    check_picture(args.out)
    study = find_study(args.sweep)
    if args.json:
        print_json(_as_data(study))
        return 0
    plot = build_sweep_plot(study)
    if plot is None and (args.plot or args.out):
        raise AlchemyError(f"the sweep {study.name!r} has no values to plot yet")
    if plot is not None and args.out:
        write_plot(plot, args.out)
        if not args.plot:
            return 0
    print(describe_sweep(study) + "\n")
    print_results(study, args.limit)
    if plot is not None and args.plot:
        print()
        print_plot(plot, args.height)
    return 0


def list_sweeps(args: argparse.Namespace) -> int:
    rows: list[dict[str, Any]] = []
    for name in list_studies():
        try:
            study = Study(sweeps_folder() / name)
        except AlchemyError as error:
            print(printable(f"warning: {error}"), file=sys.stderr)
            continue
        best = study.rank_trials()[:1]
        rows.append(
            {
                "name": study.name,
                "config": study.plan.config,
                "method": study.plan.method,
                "points": len(study.trials),
                "metric": study.plan.metric,
                "best": best[0].value if best else None,
                "created": study.plan.created,
            }
        )
    if args.json:
        print_json(rows)
    elif rows:
        shown = [["" if cell is None else format_value(cell) for cell in row.values()] for row in rows]
        print_table(list(rows[0]), shown, wide={"config"})
    else:
        print("no sweeps; `alchemy sweep CFG` starts one")
    return 0


def describe_sweep(study: Study) -> str:
    plan = study.plan
    counts = Counter(_find_states(study).values())
    states = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
    most = plan.trials or (study.space.count_points(MOST_COUNTED) if plan.method == "grid" else 0)
    total = f" of {most:,}" if len(study.trials) <= most < MOST_COUNTED else ""
    search = f"{plan.method}, {plan.mode} of {plan.metric}, {format_count(len(plan.seeds), 'seed')} per point"
    return printable(f"sweep {plan.name} of {plan.config}: {search}\npoints{total}: {states}")


def _find_states(study: Study) -> dict[int, str]:
    """Return the state of each point: of one that has not ended, that of its runs in the queue."""
    entries = [entry for entry in Queue().list(study.group) if entry.note.get("study") == study.plan.created]
    found = {}
    for trial in study.trials:
        own = {entry.state for entry in entries if entry.note.get("point") == trial.number}
        order = (state for state in (RUNNING, WAITING, HELD) if state in own)
        found[trial.number] = next(order, WAITING) if trial.state == RUNNING else trial.state
    return found


def print_results(study: Study, limit: int | None) -> None:
    ranked = study.rank_trials()
    others = [trial for trial in study.trials if trial.value is None]
    keys = shorten_keys([dimension.key for dimension in study.space.dimensions])
    states = _find_states(study)
    rows = [
        [
            str(trial.number),
            *(shorten_path(format_value(trial.point[key])) if key in trial.point else "-" for key in keys),
            summarize_trial(trial) if trial.value is not None else "",
            f"{states[trial.number]} {trial.reason}".strip(),
        ]
        for trial in [*ranked, *others][:limit]
    ]
    if rows:
        optional = list(reversed(keys.values()))
        table = fit_table(["point", *keys.values(), study.plan.metric, "state"], rows, {"state"}, optional)
        print("\n".join(table[0]))
        if table[1]:
            print(f"not enough space for {', '.join(table[1])}; --json has everything")
    hidden = len(study.trials) - len(rows)
    if hidden > 0:
        print(f".. and {hidden} more; `alchemy sweep show {study.name} -n 0` shows all")
    if ranked:
        print(printable(f"\nbest: point {ranked[0].number}\n  {_best_command(study)}"))
    if verdict := compare_best(study):
        print(printable(f"\n{verdict}"))
    if importance := measure_importance(study):
        print(f"\nimportance (share of the variance of {format_count(len(ranked), 'point')} that a key explains alone)")
        print_table(["key", "share"], [[key, f"{share:.0%}"] for key, share in importance.items()])


def _best_command(study: Study) -> str:
    overrides = [*study.plan.overrides, *build_overrides(study.rank_trials()[0].point)]
    words = [word for text in overrides for word in ("--set", text)]
    seeds = ",".join(map(str, study.plan.seeds))
    return shlex.join(hide_words(["alchemy", "run", study.plan.config, *words, "--seeds", seeds, *study.plan.options]))


def summarize_trial(trial: Trial) -> str:
    return str(summarize_values(list(trial.values.values())))


def _as_data(study: Study) -> dict[str, Any]:
    ranked = study.rank_trials()
    return {
        **asdict(study.plan),
        "points": [asdict(trial) for trial in study.trials],
        "best": ranked[0].number if ranked else None,
        "command": _best_command(study) if ranked else None,
        "verdict": compare_best(study),
        "importance": measure_importance(study),
    }
