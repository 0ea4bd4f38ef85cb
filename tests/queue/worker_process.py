"""A worker without pauses as a program, and the programs that it runs in histories of kills."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from alchemy.queue import Entry, Queue, attempts
from alchemy.queue.locked_file import read_status
from alchemy.records import Record
from alchemy.records.status import process_start

# every program notes in the ledger when it starts and ends, and if another one of its name is running; those whose name
# starts with s ignore SIGTERM, so that they outlive their supervisor
NOTE = """
import fcntl, json, os, signal, sys, time
name, seconds = sys.argv[-2], float(sys.argv[-1])
if name.startswith("s"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def note(event):
    with open("ledger", "a") as file:
        file.write(f"{name} {event}\\n")

busy = open(f"{name}.busy", "w")
try:
    fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    note("twice")
note("start")
"""
PLAIN = f"""{NOTE}
time.sleep(seconds)
note("end")
"""
# like `alchemy run`: writes a record, which is finished before the program ends, and resumes it
RUN = f"""#!{sys.executable} -IS
import sys
resume = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else ""
sys.argv = sys.argv[:4]
{NOTE}
def save(status):
    with open("template.json") as file:
        info = json.load(file)
    with open(f"{{record}}/new", "w") as file:
        json.dump(info | {{"status": status}}, file)
    os.replace(f"{{record}}/new", f"{{record}}/record.json")

record = resume or os.path.abspath(f"records/{{name}}-{{os.getpid()}}")
if resume and json.load(open(f"{{record}}/record.json"))["status"] == "finished":
    note("again")
if not resume:
    os.makedirs(f"{{record}}/state/u1")
    open(f"{{record}}/cfg.toml", "w").close()
    save("stopped")
    with open(os.environ["ALCHEMY_QUEUE_RECORDS"], "a") as file:
        file.write(f"{{record}}\\n")
    note("record")
time.sleep(seconds)
save("finished")
note("end")
"""


def write_programs(folder: Path) -> None:
    """Write a plain program, another one called `alchemy`, and what it needs, to a folder."""
    (folder / "bin").mkdir()
    (folder / "bin" / "plain.py").write_text(PLAIN)
    (folder / "bin" / "alchemy").write_text(RUN)
    (folder / "bin" / "alchemy").chmod(0o755)
    record = Record.create(folder / "made", name="x", tag="x", versions={"torch": "2"})
    record.finish("stopped")
    (folder / "template.json").write_text((record.path / "record.json").read_text())


class WorkerProcess:
    """A worker in its own process, which can be killed together with everything that it has started."""

    def __init__(self, queue: Queue, slots: int = 1) -> None:
        self.queue, self.slots = queue, slots
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is None or self.process.poll() is not None:
            words = [sys.executable, "-m", "tests.queue.worker_process", str(self.queue.folder), str(self.slots)]
            env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
            self.process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL)

    def kill(self, victim: str) -> None:
        """Kill the worker, the supervisors, the commands, or all of them."""
        assert self.process is not None
        if victim in ("worker", "all"):
            self.process.kill()
            self.process.wait()
        for entry in self.queue.list():
            status = read_status(self.queue.path(entry.id, "attempt")) if entry.state == "running" else {}
            for name, key in (("supervisor", "supervisor"), ("command", "pid")):
                if victim in (name, "all") and key in status and "exit_code" not in status:
                    _kill(status, status[key])

    def finish(self, seconds: float = 30.0) -> list[Entry]:
        """Run until nothing is left, and return the entries."""
        self.start()
        assert self.process is not None
        self.process.wait(seconds)
        assert self.process.returncode == 0
        return self.queue.list()


def _kill(status: dict, pid: int) -> None:
    """Kill a process of an attempt, unless the command has ended, so that its number may belong to another."""
    if process_start(status["pid"]) == status["pid_started"]:
        with contextlib.suppress(ProcessLookupError):  # the supervisor is gone, and its command is ending
            os.kill(pid, signal.SIGKILL)


def read_ledger(folder: Path) -> list[tuple[str, str]]:
    path = folder / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(line.split()[0], line.split()[1]) for line in lines]


def main() -> None:
    from alchemy.cli.queue_worker import run_worker
    from alchemy.queue import Slots

    attempts.SHORTEST_PAUSE = attempts.LONGEST_PAUSE = 0.0
    sys.exit(run_worker(Queue(Path(sys.argv[1])), Slots(int(sys.argv[2])), until_empty=True))


if __name__ == "__main__":
    main()
