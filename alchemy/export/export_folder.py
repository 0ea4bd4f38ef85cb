"""The folder of an export: checked before it is there, and used as long as it is whole and of the same weights."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.export.exporter import Agreement, Exporter, Sample, Watch
from alchemy.files import hash_file, read_table, replace_folder, write_atomic

FORMAT = 1
MANIFEST = "alchemy.json"


class Export(NamedTuple):
    """A folder that another program reads, how it agrees with the model, and whether it was there before."""

    folder: Path
    agreement: Agreement
    old: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in _files_of(self.folder))


def export(
    folder: Path, exporter: Exporter[Sample], samples: Callable[[], Sequence[Sample]], watch: Watch[Sample] = iter
) -> Export:
    """The export of a model: that of the folder, if it is of these weights, else a new one in its place.

    `samples` gives what a new one is checked on.
    """
    made_of, manifest = exporter.digest(), _read(folder)
    same = {"made_of": made_of, "precision": exporter.precision, "format": FORMAT}
    if same.items() <= manifest.items() and _is_whole(folder, manifest):
        return Export(folder, Agreement(**manifest["agreement"]), old=True)
    _refuse_if_theirs(folder, manifest)
    checked_on, agreements = samples(), []

    def write(new: Path) -> None:
        new.mkdir()
        exporter.write(new)
        agreements.append(exporter.check(new, checked_on, watch))
        manifest = {"format": FORMAT, "precision": exporter.precision, "made_of": made_of}
        manifest |= {exporter.name: exporter.version, "agreement": agreements[0]._asdict(), "files": _hashes(new)}
        write_atomic(new / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    with _parent(folder.parent):
        replace_folder(folder, write)
    return Export(folder, agreements[0])


def _read(folder: Path) -> dict[str, Any]:
    """What an export says of itself; nothing where it cannot be read."""
    try:
        manifest = read_table(folder / MANIFEST)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest.get("files"), dict) else {}


def _is_whole(folder: Path, manifest: dict[str, Any]) -> bool:
    found = _hashes(folder)
    return all(found.get(name) == value for name, value in manifest["files"].items())


def _refuse_if_theirs(folder: Path, manifest: dict[str, Any]) -> None:
    """An export takes the place of an export, and of nothing else."""
    if folder.is_file() or (_files_of(folder) and not (folder / MANIFEST).is_file()):
        raise AlchemyError(f"{folder} is there, and it is no export", hint="remove it, or give another folder")
    for name in _hashes(folder) if manifest else ():
        if name not in manifest["files"]:
            hint = "put it elsewhere, or give another folder"
            raise AlchemyError(f"{folder / name} is no part of the export that is to be replaced", hint=hint)


def _hashes(folder: Path) -> dict[str, str]:
    """Of all files but the one that names them."""
    files = [path for path in _files_of(folder) if path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def _files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def _parent(folder: Path) -> Iterator[None]:
    """Makes the folder that exports lie in, and takes it away again where none came of it."""
    was = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise AlchemyError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        if not was:
            with contextlib.suppress(OSError):  # there is something in it
                folder.rmdir()
