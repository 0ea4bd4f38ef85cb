"""`alchemy queue`: run experiments one after the other, on all devices of this machine."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from alchemy.cli.cluster import add_cluster
from alchemy.cli.options import Command, Parser, add_devices, add_json, print_json
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.queue import Entry, Needs, Queue

EXAMPLES = """examples:
  alchemy queue add train.toml --seeds 1,2,3 --retries 2     # three entries
  alchemy queue add --after 3 -- python evaluate.py          # any command, once entry 3 is done
  alchemy queue start --background                           # the worker: starts waiting entries on free devices
  alchemy queue ls
  alchemy queue move 7 --first
  alchemy queue hold 2                                       # a running entry saves its state and stops"""

ID = "number of an entry, as in `alchemy queue ls`"
POLL = 0.1  # seconds
NEVER_CUT = 40  # characters of a command that are kept on a narrow terminal


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, example: str) -> Parser:
        return actions.add_parser(name, help=text, epilog=f"example:\n  alchemy queue {name} {example}")

    _add_needs(add("add", "add runs, or any command after --", "train.toml --seeds 1,2,3 --retries 2"))
    ls = add("ls", "list the entries that are not done, in the order in which they start", "--all")
    ls.add_argument("--all", action="store_true", help="also list the entries that are done")
    add_json(ls)
    rm = add("rm", "remove entries; their records stay", "3 4")
    rm.add_argument("ids", nargs="*", type=int, metavar="ID", help=ID)
    rm.add_argument("--stop", action="store_true", help="stop entries that are running")
    rm.add_argument("--done", action="store_true", help="remove all entries that are done")
    hold = add("hold", "keep entries from starting, and stop those that are running", "2")
    text = "let entries start that are held, have failed, or wait for others or for a retry"
    release = add("release", text, "2 --restart")
    for changing in (hold, release):
        changing.add_argument("ids", nargs="+", type=int, metavar="ID", help=ID)
    text = "start a run from the beginning, in a new record, instead of continuing the one it has"
    release.add_argument("--restart", action="store_true", help=text)
    move = add("move", "change when an entry starts", "7 --first")
    move.add_argument("id", type=int, metavar="ID", help=ID)
    where = move.add_mutually_exclusive_group(required=True)
    where.add_argument("--first", action="store_true", help="before all others, with the highest priority")
    where.add_argument("--before", type=int, metavar="ID", help="before another entry, with its priority")
    where.add_argument("--priority", type=int, metavar="N", help="entries with a higher number start first")
    start = add("start", "start the worker, which runs entries until it is stopped", "--slots 2 --background")
    add_devices(start, "; may be repeated (default: all GPUs, or the CPU if there are none)")
    text = "runs that share a device (default: 1), or that a cluster has at a time (default: 64)"
    start.add_argument("--slots", type=int, metavar="N", help=text)
    add_cluster(start, options=False)
    start.add_argument("--until-empty", action="store_true", help="exit when nothing is left to run; 1 if a run failed")
    start.add_argument("--background", action="store_true", help="detach from the terminal and log to a file")
    stop = add("stop", "stop the worker and its runs, which resume when it is started again", "--after-running")
    add_cluster(stop, options=False)
    stop.add_argument("--after-running", action="store_true", help="let running entries end first")
    stop.add_argument("--wait", type=float, default=0.0, metavar="SECONDS", help="wait up to SECONDS for it to end")
    logs = add("logs", "print the output of an entry", "2 -f")
    logs.add_argument("id", type=int, metavar="ID", help=ID)
    logs.add_argument("-f", "--follow", action="store_true", help="continue until the entry has ended")


def _add_needs(parser: Parser) -> None:
    from alchemy.cli.queue_entries import REFUSED
    from alchemy.cli.run import add_run_options

    parser.usage = "%(prog)s [options] CFG [CFG ...]\n       %(prog)s [options] -- COMMAND"
    add_run_options(parser)
    for action in parser.actions():
        if action.dest == "cfgs":
            action.nargs = "*"  # `_add` says what is missing
        elif action.dest in (*REFUSED, "queue"):
            action.help = argparse.SUPPRESS
    add = parser.add_argument
    add("--priority", type=int, default=0, metavar="N", help="entries with a higher number start first (default: 0)")
    add("--after", action="append", type=int, default=[], metavar="ID", help="start once ID is done; may be repeated")
    add("--retries", type=int, default=0, metavar="N", help="start a failed run up to N times again; it resumes")
    add("--hold", action="store_true", help="let the entries wait for `alchemy queue release`")
    add("--devices", type=int, default=1, metavar="N", help="GPUs for each entry (default: 1, or --processes)")
    add("--cpu", action="store_true", help="run on the CPU even if there are GPUs")
    add("--memory", type=int, default=0, metavar="MB", help="start only on GPUs with this much free memory")
    add("--minutes", type=float, default=0.0, metavar="N", help="stop a run that takes longer; it has then failed")
    add("--env", action="append", default=[], metavar="NAME", help="keep this environment variable; may be repeated")


def _main(args: argparse.Namespace) -> int:
    from alchemy.queue import Queue

    actions: dict[str, Callable[[argparse.Namespace, Queue], int]] = {
        "add": _add,
        "ls": _ls,
        "rm": _rm,
        "hold": _hold,
        "release": _release,
        "move": _move,
        "start": _start,
        "stop": _stop,
        "logs": _logs,
    }
    return actions[args.action](args, Queue())


def _add(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.cluster import choose_cluster
    from alchemy.cli.queue_entries import add_entries, list_runs
    from alchemy.cli.run import prepare_runs
    from alchemy.queue import NewEntry, choose_environment

    if not args.cfgs:
        missing = "a command is missing after --" if "--" in args.words else "expected configs, or a command after --"
        raise AlchemyError(f"alchemy queue add: {missing}", hint="see 'alchemy queue add --help'")
    needs = _choose_needs(args)
    env = choose_environment(args.env)
    for name in (name for name in args.env if name not in env):
        raise AlchemyError(f"--env {name}: there is no such environment variable", hint=f"export {name}=.. first")
    commands = [_check_command(args)] if "--" in args.words else list_runs(prepare_runs(args)[0], args)
    cluster = choose_cluster(args)
    state = "held" if args.hold else "waiting"
    more: dict[str, Any] = {"priority": args.priority, "retries": args.retries, **cluster._asdict()}
    return add_entries(
        queue,
        [NewEntry(argv=argv, env=env, after=tuple(args.after), needs=needs, state=state, **more) for argv in commands],
    )


def _check_command(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the words after `--`; raise an error if there is anything that belongs to an `alchemy run`."""
    from alchemy.cli.queue_entries import format_options
    from alchemy.queue.entry import split_command

    command = tuple(args.words[args.words.index("--") + 1 :])
    if len(args.cfgs) > len(command):
        raise AlchemyError("expected configs or a command after --, got both", hint="add them one after the other")
    for option in format_options(args):
        raise AlchemyError(
            f"{option} is an option of `alchemy run`, not of a command", hint="write it after the command"
        )
    if split_command(command)[1][:1] == ("run",):
        hint = f"write: alchemy queue add {shlex.join(split_command(command)[1][1:])}"
        raise AlchemyError("`alchemy run` cannot be added as a command: it could not be resumed", hint=hint)
    return command


def _choose_needs(args: argparse.Namespace) -> Needs:
    from alchemy.queue import Needs

    for name, number, least in (
        ("--devices", args.devices, 1),
        ("--memory", args.memory, 0),
        ("--minutes", args.minutes * 60, 0),
        ("--retries", args.retries, 0),
    ):
        if not math.isfinite(number):
            raise AlchemyError(f"{name} must be a finite number, got {number}")
        if number < least:
            raise AlchemyError(f"{name} must be at least {least}")
    devices = 0 if args.cpu or args.device == [-1] else max(args.devices, args.processes)
    return Needs(devices=devices, memory_mb=args.memory, seconds=args.minutes * 60)


def _ls(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.queue_entries import build_table, print_missing_workers, settle_ended, to_row
    from alchemy.cli.table_format import print_table

    settle_ended(queue)
    entries = {entry.id: entry for entry in queue.list()}
    for name, problem in queue.damaged.items():
        print(f"warning: ignoring the damaged entry {queue.folder / name}: {printable(problem)}", file=sys.stderr)
    done = [entry for entry in entries.values() if entry.state == "done"]
    shown = [entry for entry in entries.values() if args.all or entry.state != "done"]
    rows = [to_row(queue, entry, entries) for entry in shown]
    if args.json:
        print_json(rows)
        return 0
    if rows:
        columns, cells = build_table(rows)
        longest = max(len(row[columns.index("run")]) for row in cells)
        print_table(columns, cells, wide={"cause", *(["run"] if longest > NEVER_CUT else [])})
    if done and not args.all:
        print(f"{len(done)} done; --all lists them")
    elif not rows:
        print("the queue is empty; `alchemy queue add` adds runs")
    print_missing_workers(queue, entries.values())
    return 0


def _rm(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.index.value_format import format_names
    from alchemy.queue import stop_entry

    done = [entry.id for entry in queue.list() if args.done and entry.state == "done"]
    ids = list(dict.fromkeys([*args.ids, *done]))
    if not ids and not args.done:
        raise AlchemyError("nothing to remove", hint="pass the numbers of entries, or --done")
    for entry in [queue.get(id) for id in ids]:  # all errors before the first change
        if entry.state == "running" and not args.stop:
            raise AlchemyError(f"entry {entry.id} is running", hint="add --stop to stop it")
    states = {id: stop_entry(queue, id, "removed").state for id in ids}
    removed = [str(id) for id, state in states.items() if state == "removed"]
    if removed:
        print(f"removed {format_names(removed, 8)}")
    for id in (id for id, state in states.items() if state != "removed"):
        print(f"stopping {id}; it is removed when it has ended")
    return 0


def _hold(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.queue import stop_entry

    _refuse(queue, args, "done", "failed")
    for id in args.ids:
        entry = stop_entry(queue, id)
        print(f"held {id}" if entry.state == "held" else f"stopping {id}; it is held when it has ended")
    return 0


def _refuse(queue: Queue, args: argparse.Namespace, *states: str) -> None:
    """Raise an error if an entry has one of these states, before the first one is changed."""
    for entry in [queue.get(id) for id in args.ids]:
        if entry.state in states:
            raise AlchemyError(f"entry {entry.id} is {entry.state}: there is nothing to {args.action}")


def _release(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.queue_release import release

    release(queue, args.ids, restart=args.restart)
    return 0


def _move(args: argparse.Namespace, queue: Queue) -> int:
    args.ids = [args.id]
    _refuse(queue, args, "done", "failed")
    if args.before == args.id:
        raise AlchemyError(f"entry {args.id} cannot start before itself", hint="pass another entry to --before")
    entries = [entry for entry in queue.list() if entry.id != args.id and entry.state in ("waiting", "held")]
    priority, position = args.priority, None
    if args.before is not None or (args.first and entries):
        target = entries[0] if args.first else queue.get(args.before)
        priority, position = target.priority, queue.find_position(args.id, target.id)

    def move(entry: Entry) -> Entry:
        place = entry.position if position is None else position
        return replace(entry, position=place, priority=entry.priority if priority is None else priority)

    queue.update(args.id, move)
    print(f"moved {args.id}")
    return 0


def _start(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.cluster import choose_cluster_slots, open_cluster
    from alchemy.cli.queue_worker import run_worker
    from alchemy.queue.entry import LOCAL
    from alchemy.queue.worker import refuse_second

    slots, on = choose_cluster_slots(args.on, args.slots, args.device), args.on or LOCAL
    if not args.background:
        with open_cluster(args.on):
            return run_worker(queue, slots, until_empty=args.until_empty, on=on)
    from alchemy.cli.background import launch_detached

    refuse_second(queue, on)
    info = launch_detached(["queue", *(word for word in args.words if word != "--background")])
    print(f"the worker is running in the background with pid {info['pid']}")
    print(f"log:  {info['log']}")
    print("stop: alchemy queue stop" + (f" --on {on}" if on != LOCAL else ""))
    return 0


def _stop(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.background import wait_for_exit
    from alchemy.queue.entry import LOCAL
    from alchemy.queue.worker import drain, find_worker

    on = args.on or LOCAL
    status = find_worker(queue, on)
    if not status:
        raise AlchemyError("the queue has no worker", hint="`alchemy queue start` starts one")
    if args.after_running:
        drain(queue, on)
        print(f"the worker (pid {status['pid']}) ends when its runs have ended")
    else:
        os.kill(status["pid"], signal.SIGTERM)
        print(f"stopping the worker (pid {status['pid']}); its runs close their records at the next step")
    return wait_for_exit(status, args.wait)


def _logs(args: argparse.Namespace, queue: Queue) -> int:
    from alchemy.cli.queue_entries import read_log

    path, place = queue.path(args.id, "log"), 0
    while True:
        ended = queue.get(args.id).state in ("done", "failed", "held") or not args.follow
        try:
            text, place = read_log(path, place, last=ended)
            sys.stdout.write(text)
            sys.stdout.flush()
        except FileNotFoundError:
            if ended:
                print(f"entry {args.id} was never started", file=sys.stderr)
        except OSError as error:
            raise AlchemyError(f"cannot read {path}: {error.strerror or error}") from None
        if ended:
            return 0
        time.sleep(POLL)


COMMAND = Command(_arguments, _main, EXAMPLES)
