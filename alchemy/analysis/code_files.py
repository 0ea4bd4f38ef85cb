"""The code of a record, or of a folder on disk, file by file, and how two versions of it differ."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from alchemy.errors import AlchemyError
from alchemy.files import hash_file, open_to_read
from alchemy.records.status import INFO

MAX_FILES = 20_000
LARGEST, MOST_LINES = 2**20, 5_000  # of a file whose lines are compared; difflib takes too long for larger ones


@dataclass(frozen=True)
class CodeFile:
    """A file: its path, if there is a copy, or only the hash of its content."""

    path: Path | None = None
    digest: str = ""

    def read(self) -> bytes | None:
        """Return the content, or None if there is no copy, or if it cannot be read or compared line by line."""
        try:
            if self.path is None:
                return None
            with open_to_read(self.path) as file:
                data = file.read(LARGEST + 1)
        except OSError:
            return None
        return data if len(data) <= LARGEST and b"\0" not in data else None

    def hash(self) -> str:
        try:
            return self.digest if self.path is None else hash_file(self.path)
        except OSError:
            return ""


@dataclass(frozen=True)
class FileChange:
    """How a file differs: `changed`, or only in A or in B; `diff` is empty if the lines cannot be compared."""

    file: str
    change: Literal["changed", "only in A", "only in B"]
    diff: str = ""
    note: str = ""


def record_code(folder: Path, info: Mapping[str, Any]) -> dict[str, CodeFile]:
    """Return the code that a record contains: the files in `backup/`, and the hashes of other files it imported."""
    found = {name: CodeFile(path) for name, path in _walk(folder / "backup", "")}
    hashes = info.get("code")
    for name, digest in hashes.items() if isinstance(hashes, dict) else ():
        if isinstance(digest, str):
            found.setdefault(str(name), CodeFile(digest=digest))
    return found


def folder_code(root: Path, code: Mapping[str, CodeFile], paths: Sequence[str]) -> dict[str, CodeFile]:
    """Return the files below `root` that correspond to the `code` of a record, and new files next to them.

    `paths` are the files and folders that the run backed up. Files that contain secrets are left out.
    """
    from alchemy.plugins.backup import IGNORED
    from alchemy.plugins.secret_files import secret_reason

    found: dict[str, CodeFile] = {}
    for top, source in _find_sources(root, code, paths).items():
        found |= {name: CodeFile(path) for name, path in _walk(source, top, IGNORED)}
    for name in code:
        path = root / name
        if name not in found and path.is_file() and ".." not in Path(name).parts and not os.path.isabs(name):
            found[name] = CodeFile(path)
    paths_of = {name: file.path for name, file in found.items() if file.path is not None}
    return {name: found[name] for name, path in paths_of.items() if not secret_reason(str(path.parent), path.name)}


def _find_sources(root: Path, code: Mapping[str, CodeFile], paths: Sequence[str]) -> dict[str, Path]:
    """Return where the files and folders in a backup come from: `{name in the backup: path}`."""
    tops = dict.fromkeys(name.split("/")[0] for name, file in code.items() if file.path is not None)
    named = {Path(path).name: path for path in paths}
    unnamed = [top for top in tops if top not in named]  # the backup of "." has the name of the folder at that time
    sources = {top: named[top] for top in tops if top in named} | (dict.fromkeys(unnamed, ".") if "" in named else {})
    return {top: _find_source(root, path) for top, path in sources.items()}


def _find_source(root: Path, name: str) -> Path:
    path = root / os.path.expanduser(name)
    if name == "alchemy" and not (path / "__init__.py").exists():  # the installed package, as in the plugin Backup
        return Path(__file__).parents[1]
    return path


def _walk(root: Path, prefix: str, ignored: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """Yield `(name, path)` of the regular files below a folder, without following links or entering records."""
    if root.is_file() and not root.is_symlink():
        yield prefix, root
    count = 0
    for folder, folders, files in os.walk(root):
        if INFO in files:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _matches(name, ignored))
        inside = Path(folder).relative_to(root).as_posix()
        start = "/".join(part for part in (prefix, "" if inside == "." else inside) if part)
        for name in sorted(files):
            path = Path(folder, name)
            if not _matches(name, ignored) and not path.is_symlink() and path.is_file():
                count += 1
                if count > MAX_FILES:
                    raise AlchemyError(f"{root} has more than {MAX_FILES:,} files", hint="compare other sections")
                yield f"{start}/{name}" if start else name, path


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def compare_code(a: Mapping[str, CodeFile], b: Mapping[str, CodeFile]) -> list[FileChange]:
    """Return the files that differ, with their unified diffs."""
    found = []
    for name in sorted({*a, *b}):
        if name not in b:
            found.append(FileChange(name, "only in A"))
        elif name not in a:
            found.append(FileChange(name, "only in B"))
        elif change := _compare_file(name, a[name], b[name]):
            found.append(change)
    return found


def _compare_file(name: str, a: CodeFile, b: CodeFile) -> FileChange | None:
    one, other = a.read(), b.read()
    if one is None or other is None:
        if a.hash() == b.hash():
            return None
        missing = a.path is None or b.path is None
        why = "the record has no copy of it" if missing else "it is binary or too large"
        return FileChange(name, "changed", note=f"{why}: only hashes are compared")
    if one == other:
        return None
    before, after = (data.decode("utf-8", "replace").splitlines() for data in (one, other))
    if max(len(before), len(after)) > MOST_LINES:
        return FileChange(name, "changed", note=f"it has more than {MOST_LINES:,} lines")
    diff = list(difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm=""))
    return FileChange(name, "changed", "\n".join(diff), "" if diff else "only in line endings")
