"""Create, list and read runs with alchemy, MLflow's SQLite store and TensorBoard: processes that take turns.

`python -m bench.record_peers NAME FOLDER`. MLflow and TensorBoard are not installed next to alchemy, so this module
also runs in their environment: it imports libraries only where they are used.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.turns import Work, serve

METRIC, FILTER_ABOVE = "dev/metric0", 0.5
EVENTS = "events.out.tfevents.0"


def _values(number: int) -> dict[str, float]:
    return {f"dev/metric{place}": (number * 7 + place) % 101 / 101 for place in range(10)}


# -- alchemy; the working directory is the project
def create_records() -> Work:
    """Create runs and index them, since MLflow's store is its own index."""
    from alchemy.index.record_index import RecordIndex
    from alchemy.records import Record

    def work(count: int) -> None:
        first = time.time_ns()
        for number in range(first, first + count):
            record = Record.create("records", name=f"run{number}", tag="bench")
            record.log(_values(number), update=1, step=0, epoch=0)
            record.finish("finished")
        with RecordIndex.open():
            pass

    return work


def list_records(text: str = "") -> Work:
    from alchemy.index.record_index import RecordIndex

    def work(count: int) -> None:
        with RecordIndex.open() as index:
            rows = index.query(text)
            _check(len(index.metrics(rows)), count, text)

    return work


def read_record() -> Work:
    """Read the curve of a record that is not in the index yet."""
    from alchemy.index.record_index import RecordIndex

    def work(rows: int) -> None:
        for file in Path(".alchemy").glob("index.db*"):
            file.unlink()
        with RecordIndex.open() as index:
            record = index.find("last")
            assert index.curves.read(record, "train/loss")
            _check(int(index.metrics([record])[record.id]["train/loss"]["points"]), rows)

    return work


# -- MLflow
def create_mlflow_runs() -> Work:
    from mlflow.entities import Metric  # type: ignore[import-not-found,unused-ignore]

    client = _mlflow()
    experiment = client.create_experiment("bench")

    def work(count: int) -> None:
        for number in range(count):
            run = client.create_run(experiment, run_name=f"run{number}").info.run_id
            now = time.time_ns() // 10**6
            client.log_batch(run, [Metric(name, value, now, 1) for name, value in _values(number).items()])
            client.set_terminated(run)

    return work


def list_mlflow_runs(text: str = "") -> Work:
    client = _mlflow()
    experiment = client.get_experiment_by_name("bench").experiment_id

    def work(count: int) -> None:
        runs = client.search_runs([experiment], text, max_results=50_000)
        _check(sum(len(run.data.metrics) == 10 for run in runs), count, text)

    return work


def _mlflow() -> Any:
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    logging.disable(logging.INFO)
    from mlflow import MlflowClient  # type: ignore[import-not-found,unused-ignore]

    return MlflowClient(f"sqlite:///{Path('mlflow.db').absolute()}")


# -- TensorBoard
def write_events() -> Work:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    def work(count: int) -> None:
        with open(EVENTS, "wb") as file:
            writer = RecordWriter(file)
            writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
            for step in range(count):
                summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=step % 101 / 101)])
                writer.write(Event(wall_time=0.05 * step, step=step, summary=summary).SerializeToString())
            writer.flush()

    return work


def read_events() -> Work:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def work(count: int) -> None:
        events = EventAccumulator(EVENTS, size_guidance={"scalars": 0})  # 0 keeps all of them
        events.Reload()
        _check(len(events.Scalars("train/loss")), count)

    return work


def _check(found: int, expected: int, text: str = "") -> None:
    """Make sure that all runs or rows were read; a filter selects some of the runs."""
    if not (0 < found < expected if text else found == expected):
        sys.exit(f"{sys.argv[1]}: found {found} of {expected}")


WORKS: dict[str, Callable[[], Work]] = {
    "alchemy create": create_records,
    "alchemy list": list_records,
    "alchemy filter": lambda: list_records(f"{METRIC}>{FILTER_ABOVE}"),
    "alchemy read": read_record,
    "mlflow create": create_mlflow_runs,
    "mlflow list": list_mlflow_runs,
    "mlflow filter": lambda: list_mlflow_runs(f"metrics.`{METRIC}` > {FILTER_ABOVE}"),
    "tensorboard write": write_events,
    "tensorboard read": read_events,
}


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    serve(WORKS[sys.argv[1]]())
