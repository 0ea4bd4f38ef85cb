"""A Ray cluster on this machine that lives until the input of this process ends."""

from __future__ import annotations

import os
import signal
import sys


def main(cpus: int, store_bytes: int) -> None:
    import ray

    for number in (signal.SIGINT, signal.SIGHUP):  # the process that started this one decides
        signal.signal(number, signal.SIG_IGN)
    ray.init(
        address="local",  # not another one on this machine, or the one that RAY_ADDRESS names
        num_cpus=cpus,
        object_store_memory=store_bytes,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
    )
    os.write(1, f"{ray.get_runtime_context().gcs_address}\n".encode())
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
