"""Fast-starting programs for the pages: commands are forked from a process that has already imported torch.

A command runs the same code with the same arguments, folder, environment and output, but skips the startup of Python,
which takes seconds. There are four programs: `alchemy`; `page`, which runs a file as Python does; `python`, which
leaves files to `page` and anything else to Python; and `rank`, which replaces Python where torchrun starts
`-m alchemy`. Processes that a command would spawn are forked too; those of a file are spawned.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
LENGTH = 4  # size in bytes of the length prefix of a job
# imported late by a command, and large
LATE = (
    "alchemy.models.classifier", "alchemy.models.image_model", "alchemy.models.tagger", "alchemy.models.translator",
    "alchemy.pipeline.processors", "alchemy.resuming", "alchemy.state", "alchemy.tasks.classification",
    "alchemy.tasks.image_classification", "alchemy.tasks.segmentation", "alchemy.tasks.tagging",
    "alchemy.tasks.translation", "matplotlib.pyplot", "PIL.Image", "sklearn.metrics",
)  # fmt: skip
CLIENT = """\
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    program, *words = sys.argv[2:]
    job = json.dumps({"program": program, "words": words, "folder": os.getcwd(), "env": dict(os.environ)}).encode()
    socket.send_fds(link, [len(job).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(job)
    sys.exit(int(link.recv(8)))
"""


@contextlib.contextmanager
def started(folder: Path, *modules: str) -> Iterator[Path]:
    """Return a folder with the programs, to be put first in PATH; `modules` are imported in advance."""
    address, programs = folder / "socket", folder / "bin"
    programs.mkdir()
    (folder / "client.py").write_text(CLIENT)
    for name in PROGRAMS:
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{folder}/client.py" "{address}" {name} "$@"\n')
        program.chmod(0o755)
    python = programs / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in *.py) exec page "$@" ;; *) exec "{sys.executable}" "$@" ;; esac\n')
    python.chmod(0o755)
    command = [sys.executable, "-m", "tests.docs.zygote", str(address), *modules]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (
        open(folder / "zygote.txt", "w") as errors,
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n", errors.name
            yield programs
        finally:
            process.terminate()


def ask(address: Path, words: list[str], *, folder: Path, env: dict[str, str], output: Path, limit: int) -> int:
    """Return the exit code of `alchemy WORDS`, without a client; the command is killed after `limit` seconds."""
    job = json.dumps({"program": "alchemy", "words": words, "folder": str(folder), "env": env, "limit": limit}).encode()
    with socket.socket(socket.AF_UNIX) as link, open(os.devnull) as nothing, open(output, "wb") as out:
        link.connect(str(address))
        handles = [nothing.fileno(), out.fileno(), out.fileno()]
        socket.send_fds(link, [len(job).to_bytes(LENGTH, "big")], handles)
        link.sendall(job)
        return int(link.recv(8))


# -- in the process
def serve(address: str, *modules: str) -> None:
    _warm_up()
    for name in modules:
        importlib.import_module(name)
    gc.freeze()  # garbage collection in a child would copy all memory pages
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            link, _ = server.accept()
            if not os.fork():
                server.close()
                _attend(link)
            link.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _warm_up() -> None:
    """Import modules that a command imports late, without starting a thread."""
    import torch

    import alchemy.cli
    from alchemy.config.part_source import parts
    from alchemy.launch import worker_pool
    from alchemy.records.environment import installed_packages

    weight = torch.nn.Parameter(torch.zeros(1))
    torch.optim.AdamW([weight])  # makes torch import its compiler, which takes seconds
    for module in pkgutil.iter_modules(alchemy.cli.__path__, "alchemy.cli."):
        if not module.ispkg:
            importlib.import_module(module.name)
    for name in (*LATE, "alchemy.verify.replay", "alchemy.verify.reproducibility"):
        importlib.import_module(name)
    parts()  # caches the sources of all parts
    installed_packages()  # cached too
    forking = {**vars(multiprocessing), "get_context": lambda method: multiprocessing.get_context("fork")}
    worker_pool.multiprocessing = SimpleNamespace(**forking)  # type: ignore[assignment]


def _attend(link: socket.socket) -> None:
    """Run a job in a child, and report its exit code."""
    head, handles, _, _ = socket.recv_fds(link, LENGTH, 3)
    size, text = int.from_bytes(head, "big"), b""
    while len(text) < size:
        text += link.recv(size - len(text))
    child = os.fork()
    if not child:
        link.close()
        _become(json.loads(text), handles)
    for handle in handles:
        os.close(handle)
    code = _wait(child, link)
    with contextlib.suppress(BrokenPipeError):
        link.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _wait(child: int, link: socket.socket) -> int:
    """Return the exit code of a child; terminate it if the client disconnects."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if select.select([link], [], [], 0.01)[0]:
            os.kill(child, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(job: dict[str, Any], handles: list[int]) -> None:
    """Run the program itself."""
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["env"])
    signal.alarm(job.get("limit", 0))  # killed even while it waits
    code = 1
    try:
        code = PROGRAMS[job["program"]](job["words"])
    except SystemExit as left:
        code = int(left.code or 0)
    except BaseException:
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skip the interpreter's cleanup, which takes a second after a fork


def _alchemy(words: list[str]) -> int:
    from alchemy.__main__ import main

    program = Path(sys.executable).parent / "alchemy"
    sys.argv, sys.path[0] = [str(program), *words], str(program.parent)
    return main()


def _rank(words: list[str]) -> int:
    assert words[:3] == ["-u", "-m", "alchemy"], words
    return _alchemy(words[3:])


def _page(words: list[str]) -> int:
    from alchemy.launch import worker_pool

    worker_pool.multiprocessing = multiprocessing  # child processes import the file again, as for a user
    sys.argv, sys.path[0] = words, os.getcwd()
    sys.modules.pop("__mp_main__", None)  # that of the zygote, which pickle searches first
    runpy.run_path(os.path.abspath(words[0]), run_name="__main__")
    return 0


PROGRAMS = {"alchemy": _alchemy, "rank": _rank, "page": _page}

if __name__ == "__main__":
    serve(*sys.argv[1:])
