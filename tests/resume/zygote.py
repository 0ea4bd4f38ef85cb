"""A process that has imported everything, and forks a child for every run: starting Python takes seconds.

Reads jobs as JSON lines and answers each with one line: `{"code": exit code, or minus a signal; "seen": places}`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import alchemy
from alchemy.cli import main
from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.records.environment import installed_packages
from tests.resume import bomb, faults
from tests.resume.parts import config

LONGEST = 300.0  # timeout in seconds, generous for a busy machine


def serve() -> None:
    torch.set_num_threads(1)
    _warm_up()
    gc.freeze()  # garbage collection in a child would copy all memory pages
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def _warm_up() -> None:
    """Import modules that a run imports late, without starting a thread."""
    weight = torch.nn.Parameter(torch.zeros(1))
    torch.optim.AdamW([weight])  # makes torch import its compiler, which takes seconds
    # no more than most runs need: a larger process takes longer to fork, with every loader worker
    for name in ("alchemy.cli.resume", "alchemy.cli.run", "alchemy.resuming", "alchemy.state", "tests.resume.parts"):
        importlib.import_module(name)
    check(prepare_cfg(config("runs")))  # reads and caches the source of all parts
    installed_packages()  # cached too


def answer(job: dict[str, Any]) -> dict[str, Any]:
    seen = Path(job["log"] + ".seen")
    seen.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        _be_child(job, seen)
    code = _wait(child, job.get("kill"))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # loader workers of a killed child
    return {"code": code, "seen": json.loads(seen.read_text()) if seen.exists() else {}}


def _wait(child: int, kill: float | None) -> int:
    """Return the exit code of a child; kill it with all its processes after `kill` seconds."""
    begin = time.monotonic()
    while (waited := time.monotonic() - begin) < LONGEST:
        if kill is not None and waited > kill:
            with contextlib.suppress(ProcessLookupError):  # it has not created its process group yet
                os.killpg(child, signal.SIGKILL)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 999


def _be_child(job: dict[str, Any], seen: Path) -> None:
    os.setsid()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    code = 70
    try:
        os.chdir(job.get("cwd") or os.getcwd())
        _hasten()
        bomb.wire()
        if job.get("watched"):
            bomb.wire_files(job["watched"])
        bomb.plant(job.get("bombs") or [])
        for name in job.get("faults") or []:
            faults.FAULTS[name]()
        code = _work(job)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        seen.write_text(json.dumps(bomb.seen))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _hasten() -> None:
    """Skip fsync, which a kill does not need."""
    os.fsync = lambda handle: None  # type: ignore[assignment]


def _work(job: dict[str, Any]) -> int:
    if "argv" in job:
        return main(job["argv"])
    if job.get("record"):
        result = alchemy.resume(job["record"], device=[-1], **job.get("options", {}))
    else:
        (result,) = alchemy.run([job["cfg"]], device=[-1])
    return 128 + result.signal if result.signal else int(isinstance(result, Exception))


if __name__ == "__main__":
    serve()
