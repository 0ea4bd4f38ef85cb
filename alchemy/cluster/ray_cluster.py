"""Ray clusters: what a run takes there, whether one can be reached, and one that is started on this machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import cast

from alchemy.cluster.ray_executor import RayExecutor
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optional_packages import explain_missing, is_installed
from alchemy.queue.executor import find_executor

OPTIONS = ("cpus", "gpus", "memory", "copy")
CONNECT_SECONDS = 5.0
START_SECONDS = 120.0
STORE_BYTES = 200 * 2**20  # of the object store of a local cluster, which carries output and the files of records


def parse_options(words: Sequence[str]) -> dict[str, float]:
    """Return what a process of a run takes, from words such as `cpus=4`; `copy=1` copies the project in any case."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in OPTIONS:
            hint = did_you_mean(name, OPTIONS) or f"one of {', '.join(OPTIONS)}"
            raise AlchemyError(f"--ray {word}: unknown option {name!r}", hint=hint)
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = -1.0
        if not 0 <= found[name] < float("inf"):
            raise AlchemyError(f"--ray {word}: expected a number", hint=f"for example --ray {name}=1")
    return found


def check_cluster(on: str) -> None:
    """Raise an error if Ray is not installed, or if nobody answers at an address."""
    if not is_installed("ray"):
        text, hint = explain_missing("ray", f"--on {on}")
        raise AlchemyError(text, hint=hint)
    if on == "ray":
        return
    host, _, port = on.removeprefix("ray://").rpartition(":")
    hint = "the address of a Ray cluster is that of its client server, for example ray://head:10001"
    if not host or not port.isdecimal():
        raise AlchemyError(f"--on {on}: expected ray://HOST:PORT", hint=hint)
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise AlchemyError(f"cannot reach the Ray cluster {on}: {error}", hint=hint) from None


@contextlib.contextmanager
def start_cluster() -> Iterator[None]:
    """Start a Ray cluster on this machine, for entries with `on = "ray"`; it ends with this process.

    It is started by a process of its own, because Ray starts threads and the worker of the queue forks.
    """
    if "RAY_AUTH_MODE" not in os.environ:  # a token for this cluster only, which its drivers inherit
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    command = [sys.executable, "-m", "alchemy.cluster.local_ray", str(os.cpu_count() or 1), str(STORE_BYTES)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    assert process.stdin is not None and process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        address = process.stdout.readline().decode().strip() if ready else ""
        if not address:
            raise AlchemyError("the Ray cluster did not start", hint="try `ray start --head`, which says why")
        cast(RayExecutor, find_executor("ray")).address = address
        yield
    finally:
        process.stdin.close()
        deadline = time.monotonic() + CONNECT_SECONDS * 4
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
        process.wait()
