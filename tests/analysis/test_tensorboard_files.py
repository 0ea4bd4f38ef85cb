"""Records as TensorBoard event files, read with TensorBoard's own reader, and back."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from alchemy.analysis.tensorboard_files import create_record, export_record, find_event_runs, read_event_run
from alchemy.cli import main
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.records.metrics_file import read_metrics
from alchemy.records.status import read_info
from tests.analysis.fake_curves import write_curves

pytest.importorskip("tensorboard", reason="the extra `board` is not installed")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(folder: Path, out: Path) -> int:
    with RecordIndex.open() as index:
        return export_record(index.find(str(folder)), out)


def test_tensorboard_reads_what_a_record_contains(project: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = write_curves(project / "records", 1, {"dev/f1": [0.25, math.nan, 0.75], "损失": [1.0, 2.0, 3.0]})
    assert export(record, project / "tb") == 3
    found = EventAccumulator(str(project / "tb")).Reload()
    assert sorted(found.Tags()["scalars"]) == ["dev/f1", "损失"]
    events = found.Scalars("dev/f1")
    assert [(event.step, event.value) for event in events[::2]] == [(1, 0.25), (3, 0.75)]
    assert math.isnan(events[1].value)
    started = found.FirstEventTimestamp()
    assert [event.wall_time - started for event in events] == pytest.approx([0.5, 1.0, 1.5])


def test_exporting_again_replaces_the_file(project: Path) -> None:
    record = write_curves(project / "records", 1, {"dev/f1": [0.25]})
    export(record, project / "tb")
    (before,) = (path.read_bytes() for path in (project / "tb").iterdir())
    export(record, project / "tb")
    assert [path.read_bytes() for path in (project / "tb").iterdir()] == [before]


def test_rows_that_a_resumed_run_repeated_are_left_out(project: Path) -> None:
    record = write_curves(project / "records", 1, {"dev/f1": [0.1, 0.2, 0.3]})
    with open(record / "metrics.jsonl", "a") as file:
        event = {"event": "resume", "gen": 1, "from_update": 1, "from_line": 1}
        row = {"update": 2, "step": 1, "epoch": 0, "t": 9.0, "gen": 1, "values": {"dev/f1": 0.5}}
        file.write(f"{json.dumps(event)}\n{json.dumps(row)}\n")
    assert export(record, project / "tb") == 2


def test_a_record_survives_the_way_to_tensorboard_and_back(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = write_curves(project / "records", 1, {"dev/f1": [0.25, math.inf]}, {"optim": {"lr": 0.5}})
    assert main(["export-tb", "last", "tb"]) == 0
    assert main(["import-tb", "tb"]) == 0
    (new,) = (project / "records/import").iterdir()
    rows = list(read_metrics(new / "metrics.jsonl"))
    assert [(row["update"], row["t"], row["values"]["dev/f1"]) for row in rows] == [(1, 0.5, 0.25), (2, 1.0, "inf")]
    info = read_info(new)
    assert (info["kind"], info["status"], info["tag"]) == ("import", "finished", "demo")
    with RecordIndex.open() as index:
        (row,) = index.query("kind:import lr=0.5")
        assert row.name == new.name and row.started == index.find(str(record)).started
    capsys.readouterr()
    assert main(["import-tb", "tb", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["record"] == f"records/import/{new.name}"
    assert len(list((project / "records/import").iterdir())) == 1  # imported once


def test_new_style_scalars_and_settings_are_read(project: Path) -> None:
    """As TensorFlow 2 writes them: tensors, whose metadata is only in the first event."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.summary.writer.record_writer import RecordWriter

    (project / "logs/train").mkdir(parents=True)
    with open(project / "logs/train/events.out.tfevents.1", "wb") as file:
        out = RecordWriter(file)
        out.write(
            Event(wall_time=10, summary=hparams_pb({"lr": 0.1, "name": "a\x1b", "big": True})).SerializeToString()
        )
        for step, value in enumerate((1.5, 2.5)):
            summary = scalar_pb("loss", value)
            if step:
                summary.value[0].ClearField("metadata")
            out.write(Event(wall_time=11 + step, step=step, summary=summary).SerializeToString())
    ((folder, files),) = find_event_runs(project / "logs")
    run = read_event_run(project / "logs", folder, files)
    assert run.steps == {0: {"loss": 1.5}, 1: {"loss": 2.5}}
    assert run.settings == {"lr": 0.1, "name": "a\x1b", "big": True}
    assert (create_record(run, project / "records") / "cfg.toml").read_text().startswith('tag = "logs"')


def test_a_folder_whose_name_is_not_text(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.fsdecode(b"tb/caf\xe9"))
    export(write_curves(project / "records", 1, {"dev/f1": [0.25]}), folder)
    assert main(["import-tb", "tb"]) == 2
    assert "TensorBoard cannot read names that are not UTF-8; rename it" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:90] + b"x" * 40 + data[100:], bytes])
def test_damaged_files_end_where_the_damage_begins(project: Path, damage, capsys: pytest.CaptureFixture[str]) -> None:
    record = write_curves(project / "records", 1, {"dev/f1": [0.25, 0.5]})
    export(record, project / "tb")
    (path,) = (project / "tb").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert main(["import-tb", "tb"]) == 0
    assert capsys.readouterr().out


def test_wrong_arguments(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["import-tb", "nothing"]) == 2
    (project / "empty").mkdir()
    (project / "empty/events.out.tfevents.1").symlink_to("/etc/passwd")
    assert main(["import-tb", "empty"]) == 2
    (project / "file").write_text("")
    record = write_curves(project / "records", 1, {"dev/f1": [0.25]})
    assert main(["export-tb", "last", "file"]) == 2
    errors = capsys.readouterr().err
    assert "folder not found: nothing" in errors and "no event files below empty" in errors and "cannot write" in errors
    monkeypatch.setattr("importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(AlchemyError, match=r"export-tb needs the package tensorboard; pip install 'alchemy\[board\]'"):
        export(record, project / "tb")
