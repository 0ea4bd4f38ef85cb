"""Changes since a record was written: each has a name, and config keys are recognized."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError
from alchemy.files import hash_file
from alchemy.plugins.file_logger import environment, versions
from alchemy.plugins.resume_changes import Change, changes, refuse_changes
from alchemy.records import Record
from tests.toy import config


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The record of a run made in this environment."""
    made = Record.create(tmp_path, name="r", tag="t", versions=versions())
    made.finish("finished")
    (made.path / "cfg.toml").write_text(dumps(prepare_cfg(config(seed=1))))
    (made.path / "env.json").write_text(json.dumps(environment({"device": "cpu"})))
    return made.path


def found(record: Path, **config_changes: Any) -> list[Change]:
    document = prepare_cfg(config(seed=1, **config_changes))
    return changes(record, document, {"device": "cpu"}, str(record / "nowhere"))


def test_nothing_has_changed(record: Path) -> None:
    assert found(record) == []


def test_a_package_with_a_dot_in_its_name_is_no_config_key(record: Path) -> None:
    path = record / "env.json"
    env = json.loads(path.read_text())
    env["packages"]["zope.interface"] = "5.0"
    path.write_text(json.dumps(env))
    assert found(record) == [Change("zope.interface", "5.0 -> absent", breaks=False)]


def test_another_number_of_processes_is_told_and_allowed(record: Path) -> None:
    path = record / "env.json"
    env = json.loads(path.read_text())
    path.write_text(json.dumps(env | {"processes": 4}))
    (change,) = found(record)
    assert (change.name, change.breaks) == ("ranks", False)
    assert change.text.startswith("4 -> 1 processes: the data continues at the same position")
    refuse_changes([change], [])
    del env["processes"]  # missing in records of earlier versions
    path.write_text(json.dumps(env))
    assert found(record) == []


SEEDING = {"type": "alchemy.plugins.Seeding", "seed": 1}
FILES = {"type": "alchemy.plugins.FileLogger", "log_dir": "runs"}


@pytest.mark.parametrize(
    ("was", "now", "breaks"),
    [
        (SEEDING, SEEDING | {"seed": 2}, True),
        (SEEDING, SEEDING | {"use_deterministic_algorithms": True}, True),
        (FILES, FILES | {"level": "DEBUG"}, False),
        (FILES, FILES | {"type": "src.mine.FileLogger"}, True),
        (FILES, {"type": "src.mine.Noise"}, True),
    ],
)
def test_a_plugin_may_change_numbers(record: Path, was: Any, now: Any, breaks: bool) -> None:
    (record / "cfg.toml").write_text(dumps(prepare_cfg(config(seed=1, plugins=[was]))))
    told = found(record, plugins=[now])
    assert told and any(change.breaks for change in told) == breaks


@pytest.mark.parametrize(
    ("key", "breaks"),
    [
        ("task.datasets.train.timeout", False),
        ("task.datasets.train.pipes.0.timeout", True),
        ("task.datasets.test.pipes.0.count", False),
        ("checkpoint.every", False),
    ],
)
def test_a_parameter_of_a_pipe_is_none_of_its_loader(record: Path, key: str, breaks: bool) -> None:
    document = prepare_cfg(config(seed=1), overrides=[f"{key}=7"])
    told = changes(record, document, {"device": "cpu"}, str(record / "nowhere"))
    assert [change.breaks for change in told if change.text.endswith("-> 7")] == [breaks]


def change_info(record: Path, **fields: Any) -> None:
    info = json.loads((record / "record.json").read_text()) | fields
    (record / "record.json").write_text(json.dumps({key: value for key, value in info.items() if value is not None}))


def test_only_files_that_were_imported_count_and_are_named(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = record.parent / "src"
    code.mkdir()
    for name in ("same", "other", "gone"):
        (code / f"{name}.py").write_text("x = 1\n")
    change_info(record, code={f"src/{name}.py": hash_file(code / f"{name}.py") for name in ("same", "other", "gone")})
    monkeypatch.chdir(record.parent)
    document = prepare_cfg(config(seed=1))
    (code / "new.py").write_text("y = 2\n")
    assert [change.name for change in changes(record, document, {"device": "cpu"}, "src")] == ["cwd"]
    (code / "other.py").write_text("x = 2\n")
    (code / "gone.py").unlink()
    (change, _) = changes(record, document, {"device": "cpu"}, "src")
    assert change == Change("code", "src/other.py has changed, src/gone.py is missing", breaks=True)


def test_a_record_of_an_earlier_version_knows_one_hash_of_all_code(record: Path) -> None:
    change_info(record, code=None, code_hash="another")
    assert found(record) == [Change("code", f"the code in {record / 'nowhere'} has changed", breaks=True)]


@pytest.mark.parametrize("key", ["mine", "log_every"])
def test_config_allows_keys_at_the_top_too(record: Path, key: str) -> None:
    (change,) = found(record, **{key: 3})
    assert (change.name, change.breaks, change.of_config) == (key, True, True)
    with pytest.raises(AlchemyError, match=f"--allow {key}"):
        refuse_changes([change], [])
    refuse_changes([change], ["config"])
    refuse_changes([change], [key])


def test_config_allows_only_the_config(record: Path) -> None:
    info = json.loads((record / "record.json").read_text())
    (record / "record.json").write_text(json.dumps(info | {"versions": versions() | {"torch": "1.0"}}))
    with pytest.raises(AlchemyError, match="--allow torch"):
        refuse_changes(found(record), ["config"])


@pytest.mark.parametrize("name", ["env.json", "record.json"])
@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_damaged_file_is_named(record: Path, name: str, text: str) -> None:
    (record / name).write_text(text, encoding="latin-1")
    with pytest.raises(AlchemyError, match=name.replace(".", r"\.")):
        found(record)
