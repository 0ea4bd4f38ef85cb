"""Inject resume faults into a child: the comparison must detect each of them."""

from __future__ import annotations

from typing import Any

FAULTS: dict[str, Any] = {}


def fault(function: Any) -> Any:
    FAULTS[function.__name__] = function
    return function


def _forget_generator(name: str) -> None:
    from alchemy.seeds import Generators

    load = Generators.load_state_dict

    def partly(self: Generators, state: Any) -> None:
        load(self, {**state, name: self.state_dict()[name]})

    Generators.load_state_dict = partly  # type: ignore[method-assign]


@fault
def python_generator() -> None:
    _forget_generator("python")


@fault
def numpy_generator() -> None:
    _forget_generator("numpy")


@fault
def torch_generator() -> None:
    _forget_generator("torch")


@fault
def data_off_by_one() -> None:
    from alchemy import loop

    made = loop.EpochPosition
    loop.EpochPosition = lambda start, rank, ranks: made(start + (start > 0), rank, ranks)  # type: ignore[assignment, misc]


def _forget(owner: Any) -> None:
    owner.load_state_dict = lambda self, state: None


@fault
def average() -> None:
    from alchemy.average import Average

    _forget(Average)


@fault
def optimizer() -> None:
    from alchemy.optim import AlchemyOptimizer

    _forget(AlchemyOptimizer)


@fault
def metrics() -> None:
    from alchemy.metrics.metric_stack import Stack

    _forget(Stack)


@fault
def ledger() -> None:
    from alchemy.records import Ledger

    _forget(Ledger)


@fault
def best_checkpoints() -> None:
    from alchemy.checkpoint import Checkpoints

    _forget(Checkpoints)


@fault
def open_window() -> None:
    from alchemy.update import GradientUpdater

    load = GradientUpdater.load_state_dict
    GradientUpdater.load_state_dict = (  # type: ignore[method-assign]
        lambda self, state: load(self, {**state, "window": None})
    )


@fault
def schedule_off_by_one() -> None:
    from alchemy.sched import AlchemyTrainScheduler

    load = AlchemyTrainScheduler.load_state_dict
    AlchemyTrainScheduler.load_state_dict = (  # type: ignore[method-assign]
        lambda self, state: load(self, {**state, "num_updates": state["num_updates"] + 1})
    )


@fault
def rules() -> None:
    from alchemy.stop import Rules

    _forget(Rules)


@fault
def full_disk() -> None:
    """Make checkpoint writes fail for a while."""
    import errno

    from alchemy.checkpoint.files import Disk

    make_folder, write, saves = Disk.make_folder, Disk.write, [0]

    def count(self: Disk, folder: Any) -> None:
        saves[0] += 1
        make_folder(self, folder)

    def refuse(self: Disk, file: Any, data: Any) -> None:
        write(self, file, data[: len(data) // 2] if 2 < saves[0] < 7 else data)
        if 2 < saves[0] < 7:
            raise OSError(errno.ENOSPC, "No space left on device")

    Disk.make_folder, Disk.write = count, refuse  # type: ignore[method-assign]


@fault
def small_files() -> None:
    """Limit file sizes to a few kilobytes, so that no checkpoint can be written."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))


def _fill_disk(until: float) -> None:
    """Simulate a full disk below `runs` from the sixth forward pass on."""
    import errno
    import os
    import tempfile

    from alchemy.checkpoint.files import Disk
    from tests.resume.bomb import seen

    def refuse(path: Any) -> None:
        if 6 <= seen["forward"] < until and "/runs/" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    def guard(owner: Any, name: str, path_of: Any) -> None:
        inner = getattr(owner, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            refuse(path_of(*args, **kwargs))
            return inner(*args, **kwargs)

        setattr(owner, name, outer)

    guard(os, "write", lambda handle, data: os.readlink(f"/proc/self/fd/{handle}"))
    guard(tempfile, "mkstemp", lambda **kwargs: kwargs["dir"])
    guard(tempfile, "mkdtemp", lambda **kwargs: kwargs["dir"])
    guard(os, "mkdir", lambda path, *args: path)
    guard(Disk, "write", lambda disk, file, data: file.name)


@fault
def disk_fills_up() -> None:
    _fill_disk(until=float("inf"))


@fault
def disk_is_full_for_a_while() -> None:
    _fill_disk(until=12)


@fault
def removed() -> None:
    """Remove the record during the sixth step."""
    import os
    import shutil

    from alchemy.context import current_run
    from tests.resume.parts import Net

    forward, calls = Net.forward, [0]

    def outer(self: Net, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 6:
            record = str(current_run().record_dir)
            os.rename(record, f"{record}.gone")  # rename first: a thread writing into it would make rmtree fail
            shutil.rmtree(f"{record}.gone")
        return forward(self, *args, **kwargs)

    Net.forward = outer  # type: ignore[method-assign]
