"""Check that the files named in a config exist."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from alchemy.annotations import names_path
from alchemy.config.part_slots import Layout, Slot
from alchemy.errors import Problem, did_you_mean
from alchemy.optional_packages import explain_missing, is_installed, package_of_file
from alchemy.trust import record_of

_NAMES = ("path", "paths", "file", "files", "datapipe")
_ENDINGS = ("_path", "_paths", "_file", "_files")
_WRITTEN = ("out", "save", "log", "write", "dump", "export", "record", "cache", "target", "result", "pred")
_SUFFIXES = {
    ".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".gz", ".xz", ".zst", ".bz2", ".zip", ".tar", ".npy", ".npz",
    ".bin", ".idx", ".pt", ".pth", ".safetensors", ".model", ".vocab", ".toml", ".fasta", ".conll", ".vec", ".pkl",
}  # fmt: skip


def check_paths(layout: Layout) -> Iterator[Problem]:
    """Yield a problem for each missing file or folder that a part reads."""
    from_record = any(map(record_of, layout.sources.roots))  # Backup copies the code of the record, not its paths
    for slot in layout.slots:
        if slot.is_a("Backup"):
            yield from () if from_record else _check_backup(slot)
        elif not slot.is_a("FileLogger"):
            for key, value in slot.table.items():
                yield from _check_key(slot, key, value)


def _check_key(slot: Slot, key: str, value: object) -> Iterator[Problem]:
    param = slot.part.param(key) if slot.part else None
    declared = param is not None and (names_path(param.annotation) or (key == "path" and slot.is_a("FromFiles")))
    if key == "model_path" and slot.kind == "model":
        if isinstance(value, str) and not os.path.exists(os.path.expanduser(value)):
            yield slot.problem(f"model not found: {value!r}", key, hint=_hint(value))
        return
    if key == "type" or key.startswith(_WRITTEN) or not (declared or key in _NAMES or key.endswith(_ENDINGS)):
        return
    reads = slot.part is not None and "data pipe" in slot.part.kinds
    sure = slot.kind == "data pipe" or reads or (declared and slot.part is not None and not slot.part.old_style)
    for path in value if isinstance(value, list) else [value]:
        if isinstance(path, str) and (declared or _looks_local(path)) and not _exists(path):
            yield slot.problem(f"file not found: {path!r}", key, hint=_hint(path), error=sure)
        elif isinstance(path, str) and key == "path" and slot.is_a("FromFiles") and _is_folder(path):
            yield slot.problem(f"expected a file, but {path!r} is a folder", key, hint=f"try '{path}/*'")
        package = package_of_file(str(path)) if reads else ""
        if package and not is_installed(package):
            text, hint = explain_missing(package, str(path))
            yield slot.problem(text, key, hint=hint)


def _check_backup(slot: Slot) -> Iterator[Problem]:
    paths = slot.table.get("paths", []) if "paths" in slot.table else []
    for path in paths if isinstance(paths, list) else []:
        # if there is no `alchemy` folder, Backup copies the installed package
        if isinstance(path, str) and path != "alchemy" and not _exists(path):
            yield slot.problem(f"backup path not found: {path!r}", "paths", hint=_hint(path))


def _looks_local(path: str) -> bool:
    """Return whether a string clearly names a local file rather than a hub model or a URL.

    >>> [_looks_local(p) for p in ("data/train.txt", "/data/x", "bert-base-chinese", "https://x.org/a", "org/model")]
    [True, True, False, False, False]
    """
    if "://" in path or "\n" in path or not path.strip():
        return False
    if path.startswith(("/", "./", "../", "~")):
        return True
    return os.path.splitext(path)[1].lower() in _SUFFIXES


def _exists(path: str) -> bool:
    path = os.path.expanduser(path)
    try:
        return os.path.exists(path) or (any(c in path for c in "*?[") and bool(glob.glob(path)))
    except ValueError:  # an embedded null character
        return False


def _is_folder(path: str) -> bool:
    return os.path.isdir(os.path.expanduser(path))


def _hint(path: str) -> str:
    """Return a hint: a similar name in the same folder, or the folder that paths are relative to."""
    if "\\" in path or not path.isprintable():
        return "a backslash in double quotes starts an escape sequence: use forward slashes"
    path = os.path.expanduser(path)
    folder, name = os.path.split(path.rstrip("/"))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        siblings = os.listdir(folder or ".")
    except (OSError, ValueError):
        siblings = []
    near = did_you_mean(name, siblings)
    return near or ("" if os.path.isabs(path) else "paths are relative to the working directory")
