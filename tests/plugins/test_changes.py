"""What has changed since a record was written: each thing has a name, and a config key is known as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.config.write import dumps
from alchemy.errors import AlchemyError
from alchemy.plugins.changes import Change, changes, refuse_changes
from alchemy.plugins.files import environment, versions
from alchemy.records import Record
from tests.toy import config


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """The record of a run that was made here and now."""
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
    assert change.text.startswith("4 -> 1 processes: the data goes on where it stood")
    refuse_changes([change], [])
    del env["processes"]  # a record of an earlier version does not say
    path.write_text(json.dumps(env))
    assert found(record) == []


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
