"""`alchemy sweep`: search for good values of config keys, and show what was found."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import (
    Command,
    Parser,
    add_configs,
    add_devices,
    add_json,
    add_limit,
    add_user_dir,
    parse_integers,
    print_json,
)
from alchemy.errors import AlchemyError, ConfigError, printable

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.queue import Event
    from alchemy.sweep.settings import Settings
    from alchemy.sweep.space import Point
    from alchemy.sweep.study import Study, Trial

EXAMPLES = """examples:
  alchemy sweep train.toml                                            # the space and settings in [sweep]
  alchemy sweep train.toml --grid optim.lr=1e-3,1e-4 --seeds 3
  alchemy sweep train.toml --method tpe --trials 50 --prune median --slots 2
  alchemy sweep show train --plot
  alchemy sweep ls"""

SETTINGS = ("method", "metric", "mode", "trials", "seeds", "prune", "prune_after", "seed", "name")


def _arguments(parser: Parser) -> None:
    from alchemy.sweep.settings import METHODS, PRUNERS

    actions = parser.add_subparsers(dest="action", metavar="CFG|ACTION", required=True)
    run = actions.add_parser("run", help="run a sweep, or continue it; 'run' may be left out", epilog=EXAMPLES)
    add_configs(run, many=False)
    add = run.add_argument
    add("--grid", action="append", default=[], metavar="KEY=V,V", help="values of a config key; may be repeated")
    add("--method", choices=METHODS, help=f"{', '.join(METHODS)} (default: grid, or random if a key has a range)")
    add("--metric", metavar="NAME", help="metric to compare runs by (default: the monitor of [checkpoint])")
    add("--mode", choices=("min", "max"), help="whether lower or higher values are better")
    add("--trials", type=int, metavar="N", help="number of points (default: all of a grid, otherwise 20)")
    add(
        "--seeds", type=_parse_seeds, metavar="N", help="seeds of each point: a number of them, or a list such as 1,2,3"
    )
    add("--prune", choices=PRUNERS, help="stop runs that are worse than others after as many evaluations")
    add("--prune-after", type=int, metavar="N", help="evaluations before a run may be pruned (default: 1)")
    add("--seed", type=int, metavar="N", help="seed of the search (default: 0)")
    add("--name", metavar="NAME", help="name of the sweep (default: the name of the config file)")
    add("--slots", type=int, default=1, metavar="N", help="number of runs that share a device (default: 1)")
    add("--retry-failed", action="store_true", help="run the failed runs of the sweep again")
    add_devices(run, "; may be repeated (default: all GPUs, or the CPU if there are none)")
    add_user_dir(run)
    add("--strict", action="store_true", help="treat warnings about unknown keys as errors")
    show = actions.add_parser("show", help="show the points of a sweep", epilog="example:\n  alchemy sweep show train")
    show.add_argument("name", metavar="NAME", help="name of the sweep")
    show.add_argument("--plot", action="store_true", help="also draw the parallel coordinates, and the metric by key")
    show.add_argument("--out", metavar="FILE", help="write the plots as a picture: .svg or .png")
    show.add_argument("--height", type=int, default=12, metavar="N", help="rows of a plot (default: 12)")
    add_limit(show, 20, "points")
    add_json(show)
    ls = actions.add_parser("ls", help="list the sweeps of the project", epilog="example:\n  alchemy sweep ls --json")
    add_json(ls)


def _parse_seeds(text: str) -> int | list[int]:
    seeds = parse_integers(text)
    return seeds if "," in text else seeds[0]


def _main(args: argparse.Namespace) -> int:
    actions: dict[str, Callable[[argparse.Namespace], int]] = {"run": _run, "show": _show, "ls": _ls}
    return actions[args.action](args)


# -- run


def _run(args: argparse.Namespace) -> int:
    from alchemy.cli.problems import print_problems
    from alchemy.cli.queue_worker import choose_slots
    from alchemy.launch.project_imports import add_to_path
    from alchemy.launch.signals import handle_signals
    from alchemy.queue import Queue
    from alchemy.sweep.check_space import make_loader
    from alchemy.sweep.controller import Controller
    from alchemy.sweep.study import make_plan, open_study

    slots = choose_slots(args.slots, args.device)
    load = make_loader(args.cfg, args.overrides, allow_code=args.allow_code, user_dir=args.user_dir)
    document = load([])
    add_to_path(args.user_dir)
    settings, warnings = _check(document, load, args)
    plan = make_plan(document, settings, args.overrides, _digest(document))
    received: list[int] = []
    with open_study(plan) as study:
        _check_packages(settings)
        print_problems(warnings, sys.stderr)
        print(_describe(study))
        command = _build_command(args, document, plan.digest)
        controller = Controller(study, settings, Queue(), command, slots, _report(study), _print_event)
        if args.retry_failed:
            controller.retry()

        def stop(number: int) -> bool:
            received.append(number)
            controller.stop()
            return True

        with handle_signals(stop):
            complete = controller.run()
        if received:
            print("stopped; run the same command to continue", file=sys.stderr)
            return 128 + received[0]
        print()
        _print_results(study, limit=10)
        if not complete:
            print("some runs are held: `alchemy queue ls` lists them", file=sys.stderr)
        return 0 if complete and study.ranked() else 1


def _check(document: Document, load: Any, args: argparse.Namespace) -> tuple[Settings, list[Any]]:
    """Return the settings and warnings; raise all errors of the config, of the settings and of the space at once."""
    from alchemy.cli.launch import check_documents, check_secrets
    from alchemy.sweep.check_space import check_space
    from alchemy.sweep.settings import read_settings

    check_secrets([document])
    given = {key: vars(args)[key] for key in SETTINGS if vars(args)[key] is not None}
    settings, problems = read_settings(document, args.grid, given)

    def check(documents: Any, strict: bool) -> Any:
        return check_documents(documents, argparse.Namespace(strict=strict or args.strict, user_dir=args.user_dir))

    problems = [*problems, *check_space(settings, load, check)]
    if any(problem.error for problem in problems):
        raise ConfigError(problems)
    return settings, problems


def _check_packages(settings: Settings) -> None:
    from alchemy.optional_packages import import_package

    if settings.method in ("tpe", "cmaes"):
        import_package("optuna" if settings.method == "tpe" else "cmaes", f"the method {settings.method}")


def _digest(document: Document) -> str:
    """Return a hash of what the runs read of a config."""
    from alchemy.config.secrets import without_secrets
    from alchemy.config.toml_writer import dumps
    from alchemy.files import hash_text

    return hash_text(
        dumps({key: item for key, item in without_secrets(document).items() if key not in ("sweep", "seed")})
    )


def _build_command(
    args: argparse.Namespace, document: Document, digest: str
) -> Callable[[Point, int], tuple[str, ...]]:
    from alchemy.config.load import prepare_cfg
    from alchemy.sweep.check_space import build_overrides

    path = document.path
    options = ["--allow-code"] * args.allow_code + ["--strict"] * args.strict
    options += ["--user-dir", args.user_dir] if args.user_dir != "src" else []
    known = [os.stat(path).st_mtime_ns]

    def build(point: Point, seed: int) -> tuple[str, ...]:
        if (changed := os.stat(path).st_mtime_ns) != known[0]:
            load = prepare_cfg(args.cfg, overrides=args.overrides, allow_code=args.allow_code, user_dir=args.user_dir)
            if _digest(load) != digest:
                hint = "undo the change and run the same command again, or pass another --name"
                raise AlchemyError(f"{path} has changed since the sweep started", hint=hint)
            known[0] = changed
        words = [word for text in (*args.overrides, *build_overrides(point)) for word in ("--set", text)]
        return (sys.executable, "-m", "alchemy", "run", args.cfg, *words, "--seeds", str(seed), *options)

    return build


def _report(study: Study) -> Callable[[str, Trial], None]:
    def report(kind: str, trial: Trial) -> None:
        values = " ".join(f"{key}={_format(value)}" for key, value in trial.point.items())
        best = " (best so far)" if study.ranked()[:1] == [trial] else ""
        result = f"{study.plan.metric} {_summarize(trial)}{best}" if kind == "done" else f"{kind}: {trial.reason}"
        print(printable(f"point {trial.number}: {values}: {result}"), flush=True)

    return report


def _print_event(event: Event) -> None:
    if event.kind == "problem":
        print(printable(f"warning: {event.text}"), file=sys.stderr)


# -- show and ls


def _show(args: argparse.Namespace) -> int:
    from alchemy.cli.plot import check_picture, print_plot, write_plot
    from alchemy.sweep.plots import build_sweep_plot
    from alchemy.sweep.study import find_study

    check_picture(args.out)
    study = find_study(args.name)
    if args.json:
        print_json(_as_data(study))
        return 0
    print(_describe(study) + "\n")
    _print_results(study, args.limit)
    plot = build_sweep_plot(study)
    if plot is None and (args.plot or args.out):
        raise AlchemyError(f"the sweep {study.name!r} has no values to plot yet")
    if plot is not None and args.out:
        write_plot(plot, args.out)
    elif plot is not None and args.plot:
        print()
        print_plot(plot, args.height)
    return 0


def _ls(args: argparse.Namespace) -> int:
    from alchemy.cli.table_format import print_table
    from alchemy.sweep.study import Study, list_studies, sweeps_folder

    studies = [Study(sweeps_folder() / name) for name in list_studies()]
    rows = []
    for study in studies:
        best = study.ranked()[:1]
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
        shown = [["" if cell is None else _format(cell) for cell in row.values()] for row in rows]
        print_table(list(rows[0]), shown, wide={"config"})
    else:
        print("no sweeps; `alchemy sweep CFG` starts one")
    return 0


def _describe(study: Study) -> str:
    from collections import Counter

    plan = study.plan
    counts = Counter(trial.state for trial in study.trials)
    states = ", ".join(f"{count} {state}" for state, count in counts.items()) or "none yet"
    total = f" of {plan.trials}" if plan.trials else ""
    search = f"{plan.method} search for the {plan.mode} of {plan.metric}, {len(plan.seeds)} seeds per point"
    return printable(
        f"sweep {plan.name} of {plan.config}: {search.replace(' 1 seeds', ' 1 seed')}\npoints{total}: {states}"
    )


def _print_results(study: Study, limit: int | None) -> None:
    from alchemy.cli.table_format import print_table
    from alchemy.sweep.results import compare_best, measure_importance

    ranked = study.ranked()
    others = [trial for trial in study.trials if trial.value is None]
    keys = [dimension.key for dimension in study.space.dimensions]
    rows = [
        [
            str(trial.number),
            *(_format(trial.point[key]) if key in trial.point else "-" for key in keys),
            _summarize(trial) if trial.value is not None else "",
            trial.state if trial.state == "done" else f"{trial.state} {trial.reason}".strip(),
        ]
        for trial in [*ranked, *others][:limit]
    ]
    if rows:
        print_table(["point", *keys, study.plan.metric, "state"], rows, wide={"state"})
    hidden = len(study.trials) - len(rows)
    if hidden > 0:
        print(f".. and {hidden} more; `alchemy sweep show {study.name} -n 0` shows all")
    if ranked:
        print(printable(f"\nbest: point {ranked[0].number}\n  {_best_command(study)}"))
        print(printable(f"\n{verdict}") if (verdict := compare_best(study)) else "", end="\n" if verdict else "")
    if importance := measure_importance(study):
        print("\nimportance (share of the variance that a key explains alone)")
        print_table(["key", "share"], [[key, f"{share:.0%}"] for key, share in importance.items()])


def _best_command(study: Study) -> str:
    import shlex

    from alchemy.config.secrets import hide_words
    from alchemy.sweep.check_space import build_overrides

    overrides = [*study.plan.overrides, *build_overrides(study.ranked()[0].point)]
    words = [word for text in overrides for word in ("--set", text)]
    seeds = ",".join(map(str, study.plan.seeds))
    return shlex.join(hide_words(["alchemy", "run", study.plan.config, *words, "--seeds", seeds]))


def _summarize(trial: Trial) -> str:
    from alchemy.index.listing import summarize_values

    return str(summarize_values(list(trial.values.values())))


def _format(value: Any) -> str:
    from alchemy.sweep.results import format_value

    return format_value(value)


def _as_data(study: Study) -> dict[str, Any]:
    from dataclasses import asdict

    from alchemy.sweep.results import compare_best, measure_importance

    ranked = study.ranked()
    return {
        **asdict(study.plan),
        "points": [asdict(trial) for trial in study.trials],
        "best": ranked[0].number if ranked else None,
        "command": _best_command(study) if ranked else None,
        "verdict": compare_best(study),
        "importance": measure_importance(study),
    }


COMMAND = Command(_arguments, _main, EXAMPLES, default="run")
