"""The options that select a cluster, and runs on it."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.queue import Needs, Slots

JOBS = 64  # runs at a time on a cluster, unless --slots says otherwise


class Cluster(NamedTuple):
    """Who runs entries, as their fields `on` and `options`."""

    on: str
    options: dict[str, Any]


def add_cluster(parser: argparse.ArgumentParser, *, options: bool = True) -> None:
    """Add `--on`, and the options for the jobs of a cluster."""
    text = "run on a cluster: slurm, ray (started for this command), or ray://HOST:PORT"
    parser.add_argument("--on", type=_parse_name, metavar="CLUSTER", help=text)
    if options:
        text = "option of Slurm jobs, such as partition=gpu, time=MINUTES or gres=gpu:1; may be repeated"
        parser.add_argument("--slurm", action="append", default=[], metavar="KEY=VALUE", help=text)
        text = "what a process takes on a Ray cluster: cpus=N, gpus=N, or memory=GB; may be repeated"
        parser.add_argument("--ray", action="append", default=[], metavar="KEY=VALUE", help=text)


def _parse_name(text: str) -> str:
    if text in ("slurm", "ray") or text.startswith("ray://"):
        return text
    raise AlchemyError(f"--on {text}: unknown cluster", hint="use slurm, ray, or ray://HOST:PORT")


def choose_cluster(args: argparse.Namespace) -> Cluster:
    """Return the cluster that was chosen, or this machine; raise an error if it cannot be used."""
    from alchemy.queue.entry import LOCAL

    for name in ("slurm", "ray"):
        if vars(args)[name] and not (args.on or "").startswith(name):
            raise AlchemyError(f"--{name} has no effect without --on {name}", hint=f"add --on {name}")
    if args.on is None:
        return Cluster(LOCAL, {})
    if args.on == "slurm":
        from alchemy.cluster.slurm_options import parse_options
        from alchemy.index.settings import load_settings

        return Cluster(args.on, parse_options(args.slurm, load_settings().slurm))
    from alchemy.cluster import ray_cluster

    ray_cluster.check_cluster(args.on)
    return Cluster(args.on, ray_cluster.parse_options(args.ray))


def choose_cluster_slots(on: str | None, count: int | None, devices: Sequence[int] | None) -> Slots:
    """Return how many runs are started at a time: on this machine, or on a cluster, which queues them itself."""
    from alchemy.cli.queue_worker import choose_slots
    from alchemy.queue import Slots

    if count is not None and count < 1:
        raise AlchemyError("--slots must be at least 1")
    if on is None:
        return choose_slots(count or 1, devices)
    if devices and devices != [-1]:
        raise AlchemyError("--device and --on exclude each other: the cluster chooses the devices")
    return Slots(count or JOBS, name=on)


@contextlib.contextmanager
def open_cluster(on: str | None) -> Iterator[None]:
    """Start a Ray cluster on this machine if that was chosen, and stop it at the end."""
    if on != "ray":
        yield
        return
    from alchemy.cluster.ray_cluster import start_cluster

    print("starting a Ray cluster on this machine", flush=True)
    with start_cluster():
        yield


def run_on_cluster(commands: Sequence[tuple[str, ...]], needs: Needs, cluster: Cluster) -> int:
    """Add runs to the queue and start them: Slurm runs them on its own; with Ray, wait until they have ended."""
    from alchemy.cli.queue_entries import describe
    from alchemy.cli.queue_worker import print_event, run_worker
    from alchemy.errors import printable
    from alchemy.queue import Event, NewEntry, Queue, Worker
    from alchemy.records.status import now

    queue, group = Queue(), f"run:{now()}"
    options: dict[str, Any] = {"on": cluster.on, "options": cluster.options, "group": group, "needs": needs}
    entries = queue.add([NewEntry(argv=argv, **options) for argv in commands])
    for entry in entries:
        print(printable(f"added {entry.id}: {describe(entry)}"))
    slots = choose_cluster_slots(cluster.on, None, None)
    if cluster.on != "slurm":
        with open_cluster(cluster.on):
            return run_worker(queue, slots, until_empty=True, on=cluster.on, group=group)

    def report(event: Event) -> None:
        if event.kind != "started" and (event.entry is None or event.entry.group == group):
            print_event(queue, event)

    slots.count = len(entries) + sum(entry.on == "slurm" for entry in queue.list())
    with Worker(queue, slots, group, report, on=cluster.on) as worker:
        while any(entry.state == "waiting" for entry in queue.list(group)):
            worker.step()  # submits them, or waits until another command has submitted its own
        worker.step(0)  # reports jobs that Slurm has refused
    for entry in (entry for entry in queue.list(group) if entry.state == "running"):
        print(f"submitted {entry.id} as job {entry.attempts[-1].job}")
    return 1 if any(entry.state == "failed" for entry in queue.list(group)) else 0
