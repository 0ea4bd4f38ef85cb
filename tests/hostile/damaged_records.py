"""Damaged or forged record folders: each function changes a valid record."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alchemy.checkpoint.manifest import File, checkpoints, read_manifest
from alchemy.files import hash_file

Damage = Callable[[Path], None]
NESTED = "[" * 200_000
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\nerror: forged line\r\x9b1m\x00"


# -- ways to damage a file
def write(name: str, content: str | bytes) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            _clear(path)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return damage


def fifo(name: str) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            _clear(path)
            os.mkfifo(path)

    return damage


def folder(name: str) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            _clear(path)
            path.mkdir()

    return damage


def loop(name: str) -> Damage:
    """A link to itself."""

    def damage(record: Path) -> None:
        for path in found(record, name):
            _clear(path)
            path.symlink_to(path.name)

    return damage


def sparse(name: str, size: int = 2**30) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            with open(path, "ab") as file:
                file.truncate(size)

    return damage


def cut(name: str) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return damage


def fields(name: str, **changes: Any) -> Damage:
    """Change fields of a JSON table; `...` removes one."""

    def damage(record: Path) -> None:
        for path in found(record, name):
            content = {**json.loads(path.read_text()), **changes}
            path.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))

    return damage


def append(name: str, *lines: str) -> Damage:
    def damage(record: Path) -> None:
        for path in found(record, name):
            with open(path, "a") as file:
                file.writelines(f"{line}\n" for line in lines)

    return damage


def forged(damage: Damage) -> Damage:
    """The same, with manifests updated to match."""

    def both(record: Path) -> None:
        damage(record)
        for path in _states(record):
            manifest = read_manifest(path)
            for name in manifest.files:
                manifest.files[name] = File((path / name).stat().st_size, hash_file(path / name))
            (path / "manifest.json").write_text(manifest.text())

    return both


def manifest(**changes: Any) -> Damage:
    """Forged manifests with a matching hash."""

    def damage(record: Path) -> None:
        for path in _states(record):
            changed = read_manifest(path)
            vars(changed).update(changes)
            (path / "manifest.json").write_text(changed.text())

    return damage


def found(record: Path, name: str) -> list[Path]:
    """Return the files of that name: `state/*/x` is one per checkpoint, `tokenizer/*/x` one per tokenizer."""
    parent, _, last = name.rpartition("/")
    folders = sorted(record.glob(parent)) if parent else [record]
    return [path / last for path in folders if path.is_dir()] if "*" not in last else sorted(record.glob(name))


def _states(record: Path) -> list[Path]:
    return [*checkpoints(record / "state"), record / "state" / "best", record / "state" / "last"]


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -- individual damages
def _rename_checkpoint(record: Path) -> None:
    newest = checkpoints(record / "state")[-1]
    newest.rename(newest.with_name("u9999"))


def _huge_checkpoint(record: Path) -> None:
    newest = checkpoints(record / "state")[-1]
    shutil.copytree(newest, newest.with_name("u" + "9" * 200))


def _names_outside(record: Path, name: str = "../../../../../outside/secret.txt") -> None:
    for path in _states(record):
        changed = read_manifest(path)
        target = path / name
        changed.files[name] = File(target.stat().st_size, hash_file(target))
        (path / "manifest.json").write_text(changed.text())


def _absolute_name(record: Path) -> None:
    _names_outside(record, "/etc/passwd")


def _leftover_link(record: Path) -> None:
    """Make it look as if a killed writer had moved files outside."""
    outside = record.parents[2] / "outside"
    (outside / "old-0-best").mkdir()
    shutil.rmtree(record / "state" / "best")
    (record / "state" / f".best.{os.uname().nodename}-4194304.x").symlink_to(outside)
    (record / "state" / ".tmp-1-u9").symlink_to(outside)


def _circles(record: Path) -> None:
    for name in ("round", "labels/round", "checkpt/round", "state/u1", "state/round"):
        (record / name).parent.mkdir(exist_ok=True)
        (record / name).symlink_to("..")


def _long_header(record: Path) -> None:
    for path in record.glob("*/*/*.safetensors"):
        path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:])


def _nested_header(record: Path) -> None:
    text = b'{"a":' * 100_000
    for path in record.glob("*/*/*.safetensors"):
        path.write_bytes(struct.pack("<Q", len(text)) + text)


def _other_shapes(record: Path) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    for path in record.glob("*/*/*.safetensors"):
        path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def _wrong_state(record: Path) -> None:
    """A complete state with values of the wrong type."""
    for path in found(record, "state/*/state.json"):
        content = json.loads(path.read_text())
        content["parts"] = {name: [name] for name in content["parts"]}
        path.write_text(json.dumps(content))


def _lying_state(record: Path) -> None:
    """A state with numbers of the right type but absurd values."""

    def lie(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: lie(inner) for key, inner in value.items()}
        return (
            [lie(inner) for inner in value] if isinstance(value, list) else -(10**30) if type(value) is int else value
        )

    for path in found(record, "state/*/state.json"):
        content = json.loads(path.read_text())
        parts = {name: part if name == "data" else lie(part) for name, part in content["parts"].items()}
        path.write_text(json.dumps({**content, "parts": parts}))


def _dead_links(record: Path) -> None:
    for name in ("best", "last"):
        shutil.rmtree(record / "state" / name)
        (record / "state" / name).symlink_to("gone")


def _unreadable(record: Path) -> None:
    for name in ("record.json", "metrics.jsonl", "env.json"):
        (record / name).chmod(0)


def _empty_record(record: Path) -> None:
    shutil.rmtree(record)
    record.mkdir()
    (record / "record.json").touch()


def _repeated_keys(record: Path) -> None:
    path = record / "record.json"
    path.write_text(path.read_text().rstrip().removesuffix("}") + ', "status": "running", "status": [1], "gen": {}}')


STRANGE: dict[str, Any] = {
    "id": [1], "tag": {"a": []}, "purpose": 7, "started": {}, "ended": "never", "cmd": "x", "seed": "NaN",
    "versions": {"torch": [1], "alchemy": {}}, "parent": {}, "variant": 3, "delta": [1], "best": "x",
}  # fmt: skip

CASES: dict[str, Damage] = {
    # special files, or files that never end
    **{f"{name} is a FIFO": fifo(name) for name in (
        "record.json", "cfg.toml", "env.json", "metrics.jsonl", "ledger.jsonl", "run.log", "state/*/manifest.json",
        "state/*/state.json", "state/*/model.safetensors", "labels/task.json", "tokenizer/*/alchemy.json", "state/best",
    )},
    **{f"{name} is a folder": folder(name) for name in (
        "record.json", "env.json", "metrics.jsonl", "run.log", ".lock", "state/*/model.safetensors",
    )},
    **{f"{name} is a file": write(name, "x") for name in ("state", "state/best", "checkpt")},
    **{f"{name} links to itself": loop(name) for name in ("record.json", "state/best", "metrics.jsonl")},
    **{f"{name} has a gigabyte": sparse(name) for name in (
        "record.json", "cfg.toml", "metrics.jsonl", "ledger.jsonl", "state/*/manifest.json", "tokenizer/*/alchemy.json",
    )},
    "the state is 100 MB of nothing": forged(sparse("state/*/state.json", 10**8)),
    "links go round": _circles,
    "links are dead": _dead_links,
    "a leftover links outside": _leftover_link,
    "files cannot be read": _unreadable,
    # invalid or unexpected JSON
    **{f"{name} is nested": write(name, NESTED) for name in (
        "record.json", "env.json", "state/*/manifest.json", "labels/task.json", "tokenizer/*/alchemy.json",
    )},
    "the state is nested": forged(write("state/*/state.json", NESTED)),
    **{f"the state is {text}": forged(write("state/*/state.json", text)) for text in ("{}", "[1]", '{"parts": 1}')},
    "the parts of the state are lists": forged(_wrong_state),
    "the numbers of the state are absurd": forged(_lying_state),
    "env.json is a list": write("env.json", "[1]"),
    "env.json is mistyped": write("env.json", '{"packages": [1], "device": "x", "threads": {}, "processes": null}'),
    "env.json has tables for texts": write("env.json", '{"device": {"device": {"device": []}}, "packages": {"x": {}}}'),
    "record.json is empty": _empty_record,
    "record.json is cut": cut("record.json"),
    "record.json has NUL bytes": write("record.json", bytes(1000)),
    "record.json is no UTF-8": write("record.json", b'{"format": 1, "tag": "\xff\xfe"}'),
    "record.json repeats keys": _repeated_keys,
    "record.json has strange fields": fields("record.json", **STRANGE),
    "record.json lacks fields": fields("record.json", **dict.fromkeys(STRANGE, ...)),
    "gen is 10**300": fields("record.json", gen=10**300),
    "gen is NaN": fields("record.json", gen=float("nan")),
    "pid is that of another process": fields("record.json", status="running", pid=1, pid_started=..., ended=None),
    "pid is huge": fields("record.json", status="running", pid=10**30),
    "heartbeat is year 1": fields("record.json", status="running", host="elsewhere", heartbeat="0001-01-01T00:00:00"),
    "texts have escapes": fields(
        "record.json", tag=ESCAPES, purpose=ESCAPES, reason=ESCAPES, host=ESCAPES, status="running",
        versions={ESCAPES: ESCAPES, "torch": ESCAPES}, heartbeat="2999-01-01T00:00:00",
    ),
    "versions have escapes": fields("record.json", versions={ESCAPES: ESCAPES, "torch": ESCAPES}, variant=ESCAPES),
    "env.json has escapes": write("env.json", json.dumps({"platform": ESCAPES, "packages": {ESCAPES: ESCAPES}})),
    # manifests
    "a checkpoint has another name": _rename_checkpoint,
    "a checkpoint has a huge number": _huge_checkpoint,
    "a manifest names a file outside": _names_outside,
    "a manifest names an absolute path": _absolute_name,
    "a manifest has an update of text": manifest(update="1"),
    "a manifest has a huge update": manifest(update=10**300, epoch=10**300),
    "a manifest has strange fields": manifest(time=3, why="no", metric=[1], value="x", mode=None, kind=[1]),
    "a manifest has escapes": manifest(time=ESCAPES, why=[ESCAPES], metric=ESCAPES, value=1.0, kind=ESCAPES),
    "a manifest names no file": manifest(files={}),
    # tensors
    "weights are cut": forged(cut("state/*/model.safetensors")),
    "weights have a long header": forged(_long_header),
    "weights have a nested header": forged(_nested_header),
    "weights have other names": forged(_other_shapes),
    # rows
    "rows are nested": append("metrics.jsonl", NESTED + "]" * len(NESTED), '{"a":' * 200_000),
    "rows have strange fields": append("metrics.jsonl", '{"update": "x", "values": [1]}', '{"update": 1}', "[1]", "\0"),
    "a row has a huge number": append("metrics.jsonl", '{"update": 1' + "0" * 5000 + "}", '{"update": 1e999}'),
    "the ledger is nested": append("ledger.jsonl", NESTED),
    "the ledger has strange rows": append("ledger.jsonl", '{"update": "x", "epoch": {}, "n": [1], "ids": 3}'),
    "the ledger counts for ever": append(
        "ledger.jsonl",
        json.dumps({"update": 99, "epoch": 99, "n": 10**15, "ids": "00", "hash": "00", "set": "00"}),
        json.dumps({"event": "epoch", "epoch": 99, "samples": 10**15, "update": 99}),
    ),
    "the ledger lost its samples": append(
        "ledger.jsonl", json.dumps({"event": "epoch", "epoch": 99, "samples": 10**15, "update": 99})
    ),
    "the ledger resumes from nowhere": append("ledger.jsonl", '{"event": "resume", "from_line": "x", "gen": []}'),
    # files that a config needs
    "cfg.toml is nested": write("cfg.toml", "a = " + NESTED),
    "cfg.toml is empty": write("cfg.toml", ""),
    "cfg.toml is cut": cut("cfg.toml"),
    "cfg.toml has values for tables": write("cfg.toml", 'task = 1\nmodel = [1]\nplugins = "x"\nrunner = {}\n'),
    "cfg.toml has escapes": append("cfg.toml", '["\\u001b[2J\\u0007"]', '"\\u001b[31m" = 1'),
    "labels are a table": write("labels/task.json", '{"a": 1}'),
    "labels have escapes": write("labels/task.json", json.dumps([ESCAPES, "good"])),
    "a tokenizer is of no class": write("tokenizer/*/alchemy.json", '{"format": 1, "type": "os.system"}'),
    "a tokenizer is a list": write("tokenizer/*/alchemy.json", "[1]"),
}  # fmt: skip
