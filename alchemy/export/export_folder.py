"""Write, check and reuse the folder of an export."""

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
    """An export folder, its agreement with the model, and whether it already existed."""

    folder: Path
    agreement: Agreement
    old: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in _list_files(self.folder))


def export(
    folder: Path, exporter: Exporter[Sample], samples: Callable[[], Sequence[Sample]], watch: Watch[Sample] = iter
) -> Export:
    """Export a model to a folder, unless the folder contains a complete export of the same weights.

    `samples` returns the input for the check. The folder is replaced only if the check passes.
    """
    made_of, manifest = exporter.digest(), _read_manifest(folder)
    same = {"made_of": made_of, "precision": exporter.precision, "format": FORMAT}
    if same.items() <= manifest.items() and _is_complete(folder, manifest):
        return Export(folder, Agreement(**manifest["agreement"]), old=True)
    _check_replaceable(folder, manifest)
    checked_on, agreements = samples(), []

    def write(new: Path) -> None:
        new.mkdir()
        exporter.write(new)
        agreements.append(exporter.check(new, checked_on, watch))
        manifest = {"format": FORMAT, "precision": exporter.precision, "made_of": made_of}
        manifest |= {exporter.name: exporter.version, "agreement": agreements[0]._asdict(), "files": _hash_files(new)}
        write_atomic(new / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    with _create_parent(folder.parent):
        replace_folder(folder, write)
    return Export(folder, agreements[0])


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an export, or an empty dict if it cannot be read."""
    try:
        manifest = read_table(folder / MANIFEST)
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest.get("files"), dict) else {}


def _is_complete(folder: Path, manifest: dict[str, Any]) -> bool:
    hashes = _hash_files(folder)
    return all(hashes.get(name) == value for name, value in manifest["files"].items())


def _check_replaceable(folder: Path, manifest: dict[str, Any]) -> None:
    """Raise an error if the folder contains anything other than an export."""
    if folder.is_file() or (_list_files(folder) and not (folder / MANIFEST).is_file()):
        raise AlchemyError(f"{folder} exists and is not an export", hint="remove it, or choose another folder")
    for name in _hash_files(folder) if manifest else ():
        if name not in manifest["files"]:
            hint = "move the file, or choose another folder"
            raise AlchemyError(f"{folder / name} is not part of the export to replace", hint=hint)


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the hashes of all files except the manifest."""
    files = [path for path in _list_files(folder) if path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def _create_parent(folder: Path) -> Iterator[None]:
    """Create the parent folder of an export; remove it again if it stays empty."""
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise AlchemyError(f"{folder} cannot be written: {error.strerror}") from error
    finally:
        if not existed:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()
