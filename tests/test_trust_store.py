"""The trust store: digests in the user's home, robust against a damaged file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from alchemy import trust
from alchemy.errors import AlchemyError
from alchemy.launch.project_imports import add_to_path
from tests.logs import warned

ONE, TWO = trust.digest_of(b"one"), trust.digest_of(b"two")


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty store, in a process that has written nothing."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(trust, "_written", set())
    trust._warn.cache_clear()
    yield tmp_path / "home" / "alchemy" / "trusted"
    trust._warn.cache_clear()


def in_another_process(digest: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(trust, "_written", set())
    return trust.is_trusted(digest)


def make_record(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("record.json", "cfg.toml"):
        (folder / name).write_text("{}")
    return folder


def test_a_digest_is_kept_once_and_can_be_removed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for digest in (ONE, TWO, ONE):
        trust.trust(digest, "a\nb")
    assert trust.entries() == dict.fromkeys((ONE, TWO), os.path.realpath("a\nb"))
    assert store.stat().st_mode & 0o777 == 0o600
    trust.distrust([ONE])
    assert not in_another_process(ONE, monkeypatch) and in_another_process(TWO, monkeypatch)
    assert store.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"\xff\0\n" + b"0" * 5000, ONE[:40].encode(), b"[" * 300000, f"{ONE}  {{".encode()])
def test_a_damaged_store_still_takes_and_gives(damage: bytes, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.parent.mkdir(parents=True)
    store.write_bytes(damage)
    store.chmod(0o600)
    trust.trust(TWO, "x")
    assert in_another_process(TWO, monkeypatch) and TWO in trust.entries()
    assert in_another_process(ONE, monkeypatch) == damage.startswith(ONE.encode())


@pytest.mark.parametrize("kind", ["folder", "fifo", "writable by all", "home is a file"])
def test_a_store_that_cannot_be_used_trusts_nothing_and_warns(
    kind: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "home is a file":
        store.parents[1].write_text("")
    else:
        store.parent.mkdir(parents=True)
    if kind == "folder":
        store.mkdir()
    elif kind == "fifo":
        os.mkfifo(store)
    elif kind == "writable by all":
        store.write_text(f"{ONE}\n")
        store.chmod(0o666)
    with warned() as lines:
        trust.trust(ONE, "x")
        assert trust.is_trusted(ONE)  # trusted in this process, which has written it
        assert not in_another_process(ONE, monkeypatch)
    assert lines and len(lines) == len(set(lines)) <= 2


def test_nothing_in_a_record_is_read_for_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record(tmp_path / "record")
    home = record / "home"
    (home / "alchemy").mkdir(parents=True)
    (home / "alchemy" / "trusted").write_text(f"{ONE}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    assert trust.store() is None and not trust.is_trusted(ONE)


@pytest.mark.parametrize("config", ["", "relative"])
def test_the_store_is_in_the_home(config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", config)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert trust.store() == tmp_path / ".config" / "alchemy" / "trusted"
    monkeypatch.setenv("HOME", "relative")
    assert trust.store() is None


def test_a_record_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("somebody's data")
    assert trust.record_of(tmp_path / "train.toml") == ""
    record = make_record(tmp_path / "new")
    assert trust.record_of(record / "backup" / "x.toml") == str(record)
    (tmp_path / "link").symlink_to(record / "backup")
    assert trust.record_of(tmp_path / "link" / ".." / "cfg.toml") == str(record)
    old = tmp_path / "old"
    (old / "checkpt").mkdir(parents=True)
    for name in ("cfg.toml", "run.log"):
        (old / name).write_text("")
    assert trust.record_of(old / "cfg.toml") == str(old)


def test_a_record_that_is_a_package_is_not_put_in_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record(tmp_path / "numpy")
    (record / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AlchemyError, match=r"numpy has an __init__.py"):
        add_to_path()
    trust.trust(trust.digest_of((record / "cfg.toml").read_bytes()), record)
    add_to_path()
