"""The driver of a run on a Ray cluster: represents the run on this machine, and ends with its exit code."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from alchemy.cluster.project_copy import is_portable, list_excluded
from alchemy.cluster.ray_node import CHUNK, Files, NodeAddress, NodeProcess
from alchemy.cluster.record_mirror import RecordMirror
from alchemy.errors import AlchemyError, printable
from alchemy.index.value_format import format_count
from alchemy.queue.attempts import NODE_LOST
from alchemy.queue.entry import Entry, read_option
from alchemy.queue.folder import Queue
from alchemy.queue.supervisor import GRACE_SECONDS

POLL = 0.3  # seconds
SYNC_SECONDS = 5.0
ANSWER_SECONDS = 60  # until a cluster that does not answer is given up, and a worker counts as lost
NOTICE_SECONDS = 30.0  # for the other processes to end by themselves after one has failed
CONNECT_ATTEMPTS = 3
CLIENT = "ray://"


class WorkerLost(Exception):
    """Raised if a node, or a process of Ray on it, is gone."""


class Driver:
    """Runs the command of an entry in one or several processes on a cluster.

    The processes are actors rather than tasks of Ray, or workers of Ray Train: an actor can return output and pass on
    SIGTERM while its command, an ordinary `alchemy run`, runs in the main thread of its own process.
    """

    def __init__(self, ray: Any, address: str, queue: Queue, entry: Entry, argv: Sequence[str]) -> None:
        self._ray, self._address, self._entry, self._argv = ray, address, entry, list(argv)
        self._records = queue.path(entry.id, "records")
        self._count = int(read_option(tuple(argv), "--processes", "1"))
        self._is_shared = True
        self._actors: list[Any] = []
        self._is_stopped = False

    def run(self) -> int:
        """Run until all processes have ended; return the exit code."""
        self._connect({})
        marker = self._records.with_name(f".{self._records.name}.{os.getpid()}")
        marker.touch()
        try:
            places = self._start_actors()
            self._is_shared = all(self._call("sees", str(marker))) and not self._entry.options.get("copy")
        finally:
            marker.unlink()
        if not self._is_shared:
            places = self._start_elsewhere()
        mirror = self._start_command(places)
        try:
            return self._follow(mirror)
        finally:
            with contextlib.suppress(Exception):  # of a client that has lost its cluster, for example
                self._call("clean")

    def _connect(self, env: dict[str, Any]) -> None:
        options: dict[str, Any] = {"address": self._address, "log_to_driver": False, "runtime_env": env}
        if not self._address.startswith(CLIENT):
            options["configure_logging"] = False
        signal.signal(signal.SIGALRM, _give_up)
        for left in reversed(range(CONNECT_ATTEMPTS)):  # a busy head may take too long to start a server for a client
            signal.alarm(ANSWER_SECONDS)
            try:
                self._ray.init(**options)
                break
            except (ConnectionError, RuntimeError) as error:
                self._ray.shutdown()
                if not left:
                    raise ConnectionError(str(error).strip().partition("\n")[0]) from error
        signal.alarm(0)
        signal.signal(signal.SIGTERM, self._stop)  # after `init`, which sets its own

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._is_stopped = True

    def _start_actors(self) -> list[NodeAddress]:
        """Start the actors, as soon as the cluster has room for them."""
        takes = self._choose_resources()
        strategy: Any = "DEFAULT"
        if self._count > 1:
            group = self._ray.util.placement_group([_as_bundle(takes)] * self._count, strategy="PACK")
            strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
        kind = self._ray.remote(NodeProcess).options(**takes, scheduling_strategy=strategy, max_restarts=0)
        self._actors = [kind.remote() for _ in range(self._count)]
        waiting = [actor.find_address.remote() for actor in self._actors]
        while self._ray.wait(waiting, num_returns=len(waiting), timeout=POLL)[1]:
            if self._is_stopped:
                sys.exit(128 + signal.SIGTERM)
        return [NodeAddress(*place) for place in self._ray.get(waiting)]

    def _choose_resources(self) -> dict[str, float]:
        """Return what each process takes; raise an error if no node has as much."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        has_gpus = any(node.get("GPU", 0) for node in nodes)
        devices = self._entry.needs.devices if has_gpus else 0
        takes = {"num_cpus": 1.0, "num_gpus": float(devices and devices // self._count)}
        options = self._entry.options
        takes |= {f"num_{name}": options[name] for name in ("cpus", "gpus") if name in options}
        takes |= {"memory": options["memory"] * 2**30} if "memory" in options else {}
        bundle = _as_bundle(takes)
        for name, value in bundle.items():
            unit, divisor = ("GB of memory", 2**30) if name == "memory" else (name, 1)
            value, *room = (amount / divisor for amount in (value, *(node.get(name, 0) for node in nodes)))
            if value > max(room) or value * self._count > sum(room):
                what = f"{format_count(self._count, 'process', 'processes')} with {value:g} {unit} each"
                has = f"at most {max(room):.3g} {unit} on a node, {sum(room):.3g} in total"
                raise AlchemyError(f"the cluster cannot run {what}: it has {has}")
        return takes

    def _start_elsewhere(self) -> list[NodeAddress]:
        """Connect again and let Ray copy the project: not every node sees this folder."""
        excluded = list_excluded(Path(self._entry.cwd))
        self._call("clean")
        self._ray.shutdown()
        os.environ["RAY_RUNTIME_ENV_IGNORE_GITIGNORE"] = "1"  # data that git ignores is copied, too
        self._connect({"working_dir": self._entry.cwd, "excludes": excluded})
        places = self._start_actors()
        self._call("copy_project")
        return places

    def _start_command(self, places: list[NodeAddress]) -> RecordMirror | None:
        """Start the command in all processes; return a mirror of its records, unless they are written here."""
        argv, cwd, records, mirror = self._argv, self._entry.cwd, str(self._records), None
        env = {"OMP_NUM_THREADS": str(int(self._entry.options.get("cpus", 1)) or 1), **self._entry.env}
        if not self._is_shared:
            env = {name: value for name, value in env.items() if is_portable(name)}
            argv = list(self._send_records())
            cwd = records = ""
            mirror = RecordMirror(self, Path(self._entry.cwd), self._note_record)
        master = {"MASTER_ADDR": places[0].address, "MASTER_PORT": str(places[0].port)}
        group = {"WORLD_SIZE": str(self._count), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **master}
        for rank, actor in enumerate(self._actors):
            more = {**group, "RANK": str(rank)} if self._count > 1 else {}
            self._call("start", argv, cwd, {**env, **more}, records, actors=[actor])
        return mirror

    def _send_records(self) -> Iterator[str]:
        """Copy the records that the command names to the workers; yield the words as they are there."""
        for word in self._argv:
            path = Path(word)
            if not path.is_absolute() or not (path / "record.json").is_file():
                yield word
                continue
            inside = os.path.relpath(path, self._entry.cwd)
            for file in sorted(one for one in path.rglob("*") if one.is_file()):
                name = f"{inside}/{file.relative_to(path)}"
                with open(file, "rb") as data:
                    for offset in range(0, max(file.stat().st_size, 1), CHUNK):
                        self._call("write", name, data.read(CHUNK), offset)
            self._call("add_record", inside)
            yield inside

    def _note_record(self, record: Path) -> None:
        with open(self._records, "a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{record}\n")

    def _follow(self, mirror: RecordMirror | None) -> int:
        """Print output and copy records until all processes have ended; if one fails, stop the others.

        After a request to stop, the processes have as much time as they need to save their state.
        """
        codes: list[int | None] = [None] * self._count
        synced, deadline, is_asked = time.monotonic(), math.inf, False
        while None in codes:
            for rank, (data, code) in enumerate(self._call("poll")):
                os.write(1, data)
                codes[rank] = code
            if any(codes) and not self._is_stopped:  # the others notice it themselves, and close the record
                deadline = min(deadline, time.monotonic() + NOTICE_SECONDS)
            if time.monotonic() > deadline or (self._is_stopped and not is_asked):
                self._call("terminate", signal.SIGKILL if is_asked else signal.SIGTERM)
                is_asked, deadline = True, math.inf if self._is_stopped else time.monotonic() + GRACE_SECONDS
            if mirror is not None and time.monotonic() - synced > SYNC_SECONDS:
                mirror.sync()
                synced = time.monotonic()
            time.sleep(POLL)
        if mirror is not None:
            mirror.sync()
        first = next((code for code in codes if code), 0)
        if first == NODE_LOST:  # the command itself has failed, with this code
            return 1
        return first if first >= 0 else 128 - first

    def list_files(self) -> dict[str, Files]:
        """Return the files of the records that the main process writes."""
        (files,) = self._call("list_files", actors=self._actors[:1])
        return dict(files)

    def read(self, name: str, offset: int) -> bytes | None:
        (data,) = self._call("read", name, offset, actors=self._actors[:1])
        return data

    def _call(self, name: str, *values: Any, actors: Sequence[Any] = ()) -> list[Any]:
        """Call a method of some or all actors; return what they return."""
        try:
            calls = [getattr(actor, name).remote(*values) for actor in actors or self._actors]
            return list(self._ray.get(calls, timeout=ANSWER_SECONDS))
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError, ConnectionError) as error:
            raise WorkerLost(str(error).strip().partition("\n")[0]) from error


def _give_up(number: int, frame: FrameType | None) -> NoReturn:
    raise ConnectionError(f"no answer within {ANSWER_SECONDS} s")


def _as_bundle(takes: dict[str, float]) -> dict[str, float]:
    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    return {names[name]: value for name, value in takes.items() if value}


def main(address: str, folder: str, id: str, *argv: str) -> int:
    """Run the command of an entry on the cluster at an address; return its exit code."""
    from alchemy.optional_packages import import_package

    queue = Queue(Path(folder))
    ray = import_package("ray", "a run on a Ray cluster")
    try:
        return Driver(ray, address, queue, queue.get(int(id)), argv).run()
    except WorkerLost as error:
        _report(f"lost a worker of the cluster: {error}")
        return NODE_LOST
    except AlchemyError as error:  # nothing that another attempt would change
        _report(f"error: {error}")
        return 2
    except ConnectionError as error:
        token = (
            ""
            if os.environ.get("RAY_AUTH_TOKEN")
            else "; if it requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN"
        )
        _report(f"error: cannot reach the Ray cluster {address}: {error}{token}")
        return 1
    except (ray.exceptions.RayError, OSError) as error:  # a full disk on the worker, for example
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        _report(f"error: the Ray cluster cannot run it: {lines[-1].strip()}")
        return 1


def _report(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
