"""The differences between two records, or between a record and the files on disk, section by section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from alchemy.analysis.code_files import CodeFile, FileChange, compare_code, folder_code, record_code
from alchemy.config.explain import differences
from alchemy.config.load import prepare_cfg
from alchemy.config.merge import format_brief
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.files import read_table
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.index.value_format import format_count
from alchemy.records.agreement import compare_ledger_files, find_metric_difference
from alchemy.records.environment import installed_packages
from alchemy.records.ledger import NAME as LEDGER
from alchemy.records.metrics_file import MACHINE_PREFIXES
from alchemy.records.record_config import flatten_config, read_config
from alchemy.records.status import INFO, read_info
from alchemy.records.symlinks import refuse_links

SECTIONS = ("config", "code", "environment", "metrics", "ledger")
PACKAGES = "packages."  # prefix of the keys of packages in the environment
OF_FOLDERS = ("config", "code", "environment")  # sections that a folder without a record has
_NOT_COMPARED = ("format", "argv")  # of env.json; what the options change is in the config


@dataclass
class Section:
    """One section of a comparison; `identical` is None if there is nothing to compare, and `text` says why.

    `changes` are `(name, value in A, value in B)`; None means that one side has no such value. `update` is the first
    update with other samples.
    """

    name: str
    identical: bool | None
    text: str
    changes: list[tuple[str, Any, Any]] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)
    update: int | None = None


@dataclass
class Side:
    """One side of a comparison: a record."""

    index: RecordIndex
    row: Row
    folder: Path = field(init=False)
    info: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.folder = refuse_links(self.row.folder)
        self.info = read_info(self.folder) if (self.folder / INFO).exists() else {}

    def load_config(self) -> Document:
        """Load the config; nothing is built from it, so that it may come from anywhere."""
        path = self.folder / "cfg.toml"
        if not path.is_file():
            raise AlchemyError(f"{self.folder} has no cfg.toml")
        return prepare_cfg(path, compare=True)

    def code(self) -> dict[str, CodeFile]:
        return record_code(self.folder, self.info)

    def environment(self) -> dict[str, Any]:
        path = self.folder / "env.json"
        try:
            found = {key: value for key, value in read_table(path).items() if key not in _NOT_COMPARED}
        except FileNotFoundError:
            raise AlchemyError(f"{self.folder} has no env.json") from None
        except (OSError, ValueError) as error:
            raise AlchemyError(f"{path} cannot be read: {error}") from error
        own = {"host": self.info.get("host"), "python": self.field("versions", "python")}
        code = self.field("alchemy", "hash")  # recorded for versions of alchemy that are not released
        return dict(flatten_config(own | ({"alchemy code": code} if code else {}) | found))

    def field(self, table: str, key: str) -> object:
        """Return a field in a table of `record.json`, or None."""
        found = self.info.get(table)
        return found.get(key) if isinstance(found, dict) else None


def diff_records(a: Side, b: Side, sections: Sequence[str] = SECTIONS) -> list[Section]:
    """Compare two records."""
    compare: dict[str, Callable[[], Section]] = {
        "config": lambda: compare_configs(a.load_config(), b.load_config()),
        "code": lambda: _compare_code(a, b),
        "environment": lambda: compare_environments(a.environment(), b.environment()),
        "metrics": lambda: _compare_metrics(a, b),
        "ledger": lambda: _compare_ledgers(a.folder / LEDGER, b.folder / LEDGER),
    }
    return list(_run(compare, sections))


def _compare_code(a: Side, b: Side) -> Section:
    found = compare_sources(a.code(), b.code(), (a.row.code_hash, b.row.code_hash))
    one, other = (side.field("git", "commit") for side in (a, b))
    if one != other:  # worth knowing, but the files decide
        found.changes.append(("git commit", one, other))
    return found


def diff_folder(
    a: Side, root: Path, load_config: Callable[[], Document], sections: Sequence[str] = OF_FOLDERS
) -> list[Section]:
    """Compare a record with the code and the config in a folder, and with the packages installed now."""

    def code() -> Section:
        known = a.code()
        paths = [path for path in _backup_paths(a.folder) if isinstance(path, str)]
        return compare_sources(known, folder_code(root, known, paths))

    def environment() -> Section:
        now = current_environment()
        return compare_environments({key: value for key, value in a.environment().items() if _is_known(key, now)}, now)

    compare = {
        "config": lambda: compare_configs(a.load_config(), load_config()),
        "code": code,
        "environment": environment,
    }
    return list(_run(compare, sections))


def _run(compare: Mapping[str, Callable[[], Section]], sections: Sequence[str]) -> Iterator[Section]:
    for name in SECTIONS:
        if name in sections and name in compare:
            try:
                yield compare[name]()
            except (AlchemyError, OSError) as error:
                yield Section(name, None, f"cannot be compared: {error}")


def compare_configs(a: Document, b: Document) -> Section:
    drawn = "seed" in b and b.origin_of("seed").kind == "drawn"
    rows = [row for row in differences(a, b) if not (drawn and row[0] == "seed")]
    changes = [(key, _present(left), _present(right)) for key, left, right in rows]
    return _section("config", changes, "; the seed is drawn for each run" if drawn else "")


def _present(value: object) -> str | None:
    return None if type(value) is object else format_brief(value, 200)  # the mark of `differences` for a missing key


def compare_sources(
    a: Mapping[str, CodeFile], b: Mapping[str, CodeFile], hashes: tuple[str, str] = ("", "")
) -> Section:
    """Compare code file by file; without backups, by the hashes of the imported files, or of the whole code."""
    if not a or not b:
        if not all(hashes):
            return Section("code", None, "cannot be compared: a record has neither a backup nor hashes of its code")
        text = "no backup, so only the hashes of the code in --user-dir are compared"
        return Section("code", hashes[0] == hashes[1], text)
    saved = [any(file.path for file in side.values()) for side in (a, b)]
    if saved[0] != saved[1]:  # only one side has a backup: compare the files that both know
        common = a.keys() & b.keys()
        a, b = ({name: side[name] for name in common} for side in (a, b))
    files = compare_code(a, b)
    count = len({*a, *b})
    text = _count_different(len(files), f"{count} files") if files else format_count(count, "file")
    note = "" if any(saved) else "; there is no backup, so only hashes are compared"
    return Section("code", not files, text + note, files=files)


def compare_environments(a: Mapping[str, Any], b: Mapping[str, Any]) -> Section:
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    return _section("environment", [(key, a.get(key), b.get(key)) for key in keys])


def current_environment() -> dict[str, Any]:
    """Return what is known about this machine without importing torch, with the names of env.json."""
    import platform

    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.machine(),
        "cpus": os.cpu_count(),
        "packages": installed_packages(),
    }
    return dict(flatten_config(found))


def _is_known(key: str, now: Mapping[str, Any]) -> bool:
    return key in now or key.startswith(PACKAGES)


def _compare_metrics(a: Side, b: Side) -> Section:
    found = a.index.metrics([a.row, b.row])
    one, other = found[a.row.id], found[b.row.id]
    names = [name for name in sorted({*one, *other}) if not name.startswith(MACHINE_PREFIXES)]
    changes = []
    for name in names:
        left, right = (_pick(table.get(name)) for table in (one, other))
        if left != right:
            changes.append((name, left, right))
    files = [side.folder / "metrics.jsonl" for side in (a, b)]
    if not all(file.is_file() for file in files):
        missing = [label for label, file in zip("AB", files, strict=True) if not file.is_file()]
        return Section("metrics", None, f"cannot be compared: no metrics.jsonl in {' and '.join(missing)}", changes)
    rows, diverging = find_metric_difference(*files)
    if not diverging and not changes:
        return Section("metrics", True, f"{format_count(rows, 'row')}, without time/* and system/*")
    text = _count_different(len(changes), str(len(names)))
    only_best = sum(bool(left and right and left["last"] == right["last"]) for _, left, right in changes)
    text += f", {only_best} of them only at the best checkpoint" if only_best else ""
    return Section("metrics", False, text + (f"; {diverging}" if diverging else ""), changes)


def _pick(summary: Mapping[str, Any] | None) -> dict[str, float | None] | None:
    return None if summary is None else {"last": summary["last"], "best": summary["at_best"]}


def _compare_ledgers(one: Path, other: Path) -> Section:
    missing = [label for label, path in (("A", one), ("B", other)) if not path.is_file()]
    if missing:
        return Section("ledger", None, f"cannot be compared: no {LEDGER} in {' and '.join(missing)}")
    found = compare_ledger_files(one, other, ("A", "B"))
    text = format_count(found.updates, "update") if found.equal else found.text
    return Section("ledger", found.equal, text, update=found.update)


def _section(name: str, changes: list[tuple[str, Any, Any]], note: str = "") -> Section:
    text = format_count(len(changes), "difference") if changes else ""
    return Section(name, not changes, f"{text}{note}".lstrip("; "), changes)


def _count_different(count: int, total: str) -> str:
    """Return for example `1 of 4 files differs`."""
    return f"{count} of {total} {'differs' if count == 1 else 'differ'}"


def _backup_paths(folder: Path) -> list[Any]:
    """Return the paths that the Backup plugin of a record copied."""
    plugins = read_config(folder).get("plugins")
    tables = [table for table in plugins if isinstance(table, dict)] if isinstance(plugins, list) else []
    found = [table.get("paths") for table in tables if str(table.get("type")).rpartition(".")[2] == "Backup"]
    return [path for paths in found if isinstance(paths, list) for path in paths]
