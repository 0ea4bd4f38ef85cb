"""The part of a run that is on a node of a Ray cluster: one process, its output, and the files of its records."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from alchemy.checkpoint.manifest import TEMPORARY
from alchemy.queue.entry import split_command
from alchemy.queue.supervisor import start_command
from alchemy.records.create_folder import QUEUE_RECORDS

CHUNK = 16 * 2**20  # bytes that are sent at once
Signature = tuple[int, int, int]  # size, time of the last change, and inode: names with the same one are hard links
Files = dict[str, Signature]  # by name in a record


class NodeAddress(NamedTuple):
    """Where a process of a run is going to be."""

    host: str
    address: str
    port: int  # one that was free, for the rendezvous


class NodeProcess:
    """A process of a run, as an actor of Ray; all methods return at once."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="alchemy-ray-")).resolve()
        self._output = open(self._folder / "output", "w+b", buffering=0)  # noqa: SIM115
        self._sent = 0
        self._project = self._folder / "project"
        self._process: subprocess.Popen[bytes] | None = None

    def find_address(self) -> NodeAddress:
        import ray

        with socket.socket() as probe:
            probe.bind(("", 0))
            return NodeAddress(socket.gethostname(), ray.util.get_node_ip_address(), probe.getsockname()[1])

    def sees(self, marker: str) -> bool:
        return os.path.exists(marker)

    def copy_project(self) -> None:
        """Copy the project that Ray has brought here: runs must not share a folder that Ray may remove."""
        try:
            shutil.copytree(os.getcwd(), self._project, symlinks=True)
        except shutil.Error as error:  # a list of all failures, as text
            self.clean()
            raise OSError(f"{error.args[0][0][2]}, on {socket.gethostname()}") from None

    def write(self, name: str, data: bytes, offset: int) -> None:
        """Write a part of a file of the copied project."""
        path = self._project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab" if offset else "wb") as file:
            file.write(data)

    def add_record(self, name: str) -> None:
        """Add a record that was copied here to those that the process writes."""
        with open(self._folder / "records", "a") as file:
            file.write(f"{self._project / name}\n")

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str], records: str) -> None:
        """Start the process; without `cwd` and `records`, in the copied project."""
        names = records or str(self._folder / "records")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        more = {**inherited, "PYTHONUNBUFFERED": "1", **env, QUEUE_RECORDS: names}
        output = {"stdin": subprocess.DEVNULL, "stdout": self._output, "stderr": subprocess.STDOUT}
        program, words = split_command(tuple(argv))
        if words and shutil.which(program[0], path=more.get("PATH")) is None:  # an environment of another machine
            argv = (sys.executable, "-m", "alchemy", *words)
        self._process = start_command(argv, cwd or str(self._project), more, **output)

    def poll(self) -> tuple[bytes, int | None]:
        """Return new output, and the exit code if the process has ended and all its output was returned."""
        assert self._process is not None, "it was started"
        code = self._process.poll()
        data = os.pread(self._output.fileno(), CHUNK, self._sent)
        self._sent += len(data)
        return data, code if not data else None

    def terminate(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def list_files(self) -> dict[str, Files]:
        """Return the files of each record, by its path in the copied project, or else in the file system."""
        names = self._folder / "records"
        records = [Path(line) for line in names.read_text().splitlines()] if names.exists() else []
        inside = {record: record.is_relative_to(self._project) for record in records}
        return {
            str(record.relative_to(self._project) if inside[record] else record): list_record_files(record)
            for record in dict.fromkeys(records)
        }

    def read(self, name: str, offset: int) -> bytes | None:
        """Return a part of a file of the copied project; None if it was removed."""
        try:
            with open(self._project / name, "rb") as file:
                file.seek(offset)
                return file.read(CHUNK)
        except FileNotFoundError:
            return None

    def clean(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def list_record_files(record: Path) -> Files:
    found: Files = {}
    for folder, folders, names in os.walk(record):
        folders[:] = [name for name in folders if not name.startswith(TEMPORARY)]
        for name in names:
            path = Path(folder, name)
            try:
                info = path.stat()
            except FileNotFoundError:
                continue
            found[str(path.relative_to(record))] = (info.st_size, info.st_mtime_ns, info.st_ino)
    return found
