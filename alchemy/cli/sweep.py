"""`alchemy sweep`: search for good values of config keys, and show what was found."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from alchemy.cli.cluster import add_cluster
from alchemy.cli.options import (
    Command,
    Parser,
    add_configs,
    add_devices,
    add_json,
    add_limit,
    add_user_dir,
    parse_integers,
)
from alchemy.errors import AlchemyError, Problem, printable

if TYPE_CHECKING:
    from alchemy.cli.cluster import Cluster
    from alchemy.config.tree import Document
    from alchemy.queue import Event, NewEntry
    from alchemy.sweep.settings import Settings
    from alchemy.sweep.space import Point
    from alchemy.sweep.study import Plan, Study, Trial

EXAMPLES = """examples:
  alchemy sweep train.toml                                            # the space and settings in [sweep]
  alchemy sweep train.toml --grid optim.lr=1e-3,1e-4 --seeds 3
  alchemy sweep train.toml --method tpe --trials 50 --prune median --slots 2
  alchemy sweep show train --plot
  alchemy sweep ls"""


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
    text = "number of runs that share a device (default: 1), or that a cluster has at a time (default: 64)"
    add("--slots", type=int, metavar="N", help=text)
    add_cluster(run)
    add("--retry-failed", action="store_true", help="run the failed runs of the sweep again")
    add_devices(run, "; may be repeated (default: all GPUs, or the CPU if there are none)")
    add_user_dir(run)
    add("--strict", action="store_true", help="treat warnings about unknown keys as errors")
    show = actions.add_parser("show", help="show the points of a sweep", epilog="example:\n  alchemy sweep show train")
    show.add_argument("sweep", metavar="NAME", help="name of the sweep")
    show.add_argument("--plot", action="store_true", help="also draw the parallel coordinates, and the metric by key")
    show.add_argument("--out", metavar="FILE", help="write the plots as a picture: .svg or .png")
    show.add_argument("--height", type=int, default=12, metavar="N", help="rows of a plot (default: 12)")
    add_limit(show, 20, "points")
    add_json(show)
    rm = actions.add_parser("rm", help="remove a sweep; its records stay", epilog="example:\n  alchemy sweep rm train")
    rm.add_argument("sweep", metavar="NAME", help="name of the sweep")
    ls = actions.add_parser("ls", help="list the sweeps of the project", epilog="example:\n  alchemy sweep ls --json")
    add_json(ls)


def _parse_seeds(text: str) -> int | list[int]:
    seeds = parse_integers(text)
    return seeds if "," in text else seeds[0]


def _main(args: argparse.Namespace) -> int:
    if args.action == "run":
        return _run(args)
    if args.action == "rm":
        return _rm(args)
    from alchemy.cli.sweep_results import list_sweeps, show_sweep

    return show_sweep(args) if args.action == "show" else list_sweeps(args)


def _rm(args: argparse.Namespace) -> int:
    from alchemy.queue import Queue
    from alchemy.sweep.controller import remove_sweep

    remove_sweep(Queue(), args.sweep)
    print(f"removed the sweep {args.sweep}; its records stay")
    return 0


def _run(args: argparse.Namespace) -> int:
    from alchemy.cli.cluster import choose_cluster, choose_cluster_slots, open_cluster
    from alchemy.cli.launch import check_secrets, raise_on_errors
    from alchemy.cli.problems import print_problems
    from alchemy.cli.sweep_results import describe_sweep, print_results
    from alchemy.index.value_format import format_count
    from alchemy.launch.project_imports import add_to_path
    from alchemy.launch.signals import handle_signals
    from alchemy.queue import Queue, Worker
    from alchemy.queue.worker import find_worker
    from alchemy.sweep.controller import Controller
    from alchemy.sweep.settings import SETTINGS
    from alchemy.sweep.study import make_plan, open_study

    slots, cluster = choose_cluster_slots(args.on, args.slots, args.device), choose_cluster(args)
    document = _load(args.cfg, args)
    add_to_path(args.user_dir)
    check_secrets([document])
    given = {key: vars(args)[key] for key in SETTINGS if vars(args)[key] is not None}
    settings, problems = check_sweep(document, args, args.grid, given)
    raise_on_errors(problems)
    options = ["--allow-code"] * args.allow_code + ["--strict"] * args.strict
    options += [f"--user-dir={args.user_dir}"] if args.user_dir != "src" else []
    plan = make_plan(document, settings, args.overrides, _hash_config(args), options)
    received: list[int] = []
    with open_study(plan) as study:
        _check_packages(settings)
        print_problems(problems, sys.stderr)
        print(describe_sweep(study), flush=True)
        monitor = document.table("checkpoint").get("monitor")
        if monitor and monitor != settings.metric:
            print(f"values are those at the best {monitor}, which is the monitor of [checkpoint]", flush=True)
        entries = _make_entries(args, document, plan, cluster)
        report = _report(study)
        worker = Worker(Queue(), slots, study.group, _print_event, cluster.on)
        controller = Controller(study, settings, worker, entries, report)
        if args.retry_failed:
            controller.retry()

        def stop(number: int) -> bool:
            received.append(number)
            controller.stop()
            return True

        with open_cluster(args.on), handle_signals(stop):
            complete = controller.run()
        if controller.is_stopped:
            print("stopped; run the same command to continue", file=sys.stderr)
            if status := find_worker(worker.queue, worker.on):
                print(f"the worker of the queue, process {status['pid']}, continues what it runs", file=sys.stderr)
            return 128 + received[0] if received else 1
        print()
        print_results(study, limit=10)
        if controller.is_exhausted and settings.trials is not None and len(study.trials) < settings.trials:
            count = format_count(len(study.trials), "point")
            print(f"\nthe space has only {count}, fewer than trials = {settings.trials}")
        if not complete:
            print("some runs are held: `alchemy queue ls` lists them", file=sys.stderr)
        return 0 if complete and study.rank_trials() else 1


def check_sweep(
    document: Document, args: argparse.Namespace, grid: Sequence[str] = (), given: Mapping[str, object] = {}
) -> tuple[Settings, list[Problem]]:
    """Return the settings of a sweep, and the problems of its settings, its space and its configs."""
    from alchemy.cli.launch import check_documents
    from alchemy.sweep.check_space import check_space
    from alchemy.sweep.settings import check_method, read_settings

    def load(more: Sequence[str]) -> Document:
        return _load(document.label, args, more)

    def check(documents: Sequence[Document], strict: bool) -> list[Problem]:
        return check_documents(documents, argparse.Namespace(strict=strict or args.strict, user_dir=args.user_dir))

    settings, problems = read_settings(document, grid, given)
    if any(check_method(settings)):  # the configs of many keys take long to check
        return settings, problems
    return settings, [*problems, *check_space(settings, load, check)]


def _check_packages(settings: Settings) -> None:
    from alchemy.optional_packages import import_package

    if settings.method in ("tpe", "cmaes"):
        import_package("optuna" if settings.method == "tpe" else "cmaes", f"the method {settings.method}")


def _load(cfg: str, args: argparse.Namespace, more: Sequence[str] = (), seed: int | None = None) -> Document:
    from alchemy.config.load import prepare_cfg

    options = {"allow_code": args.allow_code, "user_dir": args.user_dir}
    return prepare_cfg(cfg, overrides=[*args.overrides, *more], seed=seed, **options)


def _hash_config(args: argparse.Namespace) -> str:
    """Return a hash of the config that does not depend on the seed."""
    from alchemy.plugins.config_hash import config_hash

    return config_hash(_load(args.cfg, args, seed=0))  # values may be drawn with the seed


def _depends_on_time(document: Document) -> bool:
    """Return whether a config has other values each time it is loaded."""
    return any(recipe.get("dyn") in ("time", "date") for recipe in document.dynamic.values())


def _make_entries(
    args: argparse.Namespace, document: Document, plan: Plan, cluster: Cluster
) -> Callable[[Point, int], NewEntry]:
    """Return a function that makes the entry of a run; it raises an error if the config has changed."""
    from alchemy.plugins.config_hash import config_hash
    from alchemy.queue import Needs, NewEntry
    from alchemy.sweep.check_space import build_overrides

    on_cpu, is_fixed = args.device == [-1], not _depends_on_time(document) and _hash_config(args) == plan.digest
    options = [*plan.options, *["--device=-1"] * on_cpu]

    def make(point: Point, seed: int) -> NewEntry:
        if is_fixed and _hash_config(args) != plan.digest:
            hint = "undo the change and run the same command again, or pass another --name"
            raise AlchemyError(f"{document.path} has changed since the sweep started", hint=hint)
        overrides = build_overrides(point)
        expected = _load(args.cfg, args, overrides, seed)
        words = [f"--set={text}" for text in [*args.overrides, *overrides]]
        argv = (sys.executable, "-m", "alchemy", "run", args.cfg, *words, f"--seeds={seed}", *options)
        note = {"cfg_hash": config_hash(expected)} if is_fixed else {}
        needs = Needs(devices=0 if on_cpu else 1)
        return NewEntry(argv=argv, needs=needs, on=cluster.on, options=cluster.options, note=note)

    return make


def _report(study: Study) -> Callable[[str, Trial], None]:
    from alchemy.cli.sweep_results import summarize_trial
    from alchemy.sweep.results import format_value, shorten_keys

    keys = shorten_keys([dimension.key for dimension in study.space.dimensions])

    def report(kind: str, trial: Trial) -> None:
        values = " ".join(f"{keys[key]}={format_value(value)}" for key, value in trial.point.items())
        best = " (best so far)" if study.rank_trials()[:1] == [trial] else ""
        result = f"{study.plan.metric} {summarize_trial(trial)}{best}" if kind == "done" else f"{kind}: {trial.reason}"
        print(printable(f"point {trial.number}: {values}: {result}"), flush=True)

    return report


def _print_event(event: Event) -> None:
    if event.kind == "problem":
        print(printable(f"warning: {event.text}"), file=sys.stderr)


COMMAND = Command(
    _arguments, _main, f"{EXAMPLES}\n\n`alchemy sweep run --help` lists the options of a sweep.", default="run"
)
