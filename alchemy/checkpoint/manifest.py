"""Read and verify checkpoint manifests, and list checkpoints. Does not import torch."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.files import hash_file, hash_text, parse_json, read_bytes, read_table, recover_folder

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"
LARGEST_STATE = 2**30  # maximum bytes of JSON; tensors are stored in other files
TEMPORARY = ".tmp-"
WHOLE, WEIGHTS = "whole", "weights"
LINKS = ("best", "last")
FOLDER = re.compile(r"u(\d+)(?:-(\d+))?")


class Where(NamedTuple):
    """A position in a run: the number of updates so far, and the epoch and last step, both counted from 0."""

    update: int
    epoch: int
    step: int


class Best(NamedTuple):
    """The evaluation with the best value of the monitored metric, with all its scores."""

    metric: str
    value: float
    where: Where
    scores: Mapping[str, float]


class File(NamedTuple):
    bytes: int
    sha256: str


@dataclass
class Manifest:
    """The manifest of a checkpoint: position, time, reasons, and the size and hash of every file."""

    update: int
    epoch: int
    step: int
    time: str
    kind: str = WHOLE  # or "weights", from which a run cannot resume
    why: list[str] = field(default_factory=list)  # every, best, end, signal, ..
    metric: str = ""
    value: float | None = None
    mode: str = ""  # "max" if higher values of the metric are better, "min" if lower
    files: dict[str, File] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def text(self) -> str:
        """Return the JSON text, including a hash of its content that detects any change."""
        files = {name: {"bytes": file.bytes, "sha256": file.sha256} for name, file in sorted(self.files.items())}
        content = {"format": self.format} | vars(self) | {"files": files}
        return json.dumps({**content, "check": _check(content)}, indent=1) + "\n"


def _parse(text: str) -> Manifest:
    """Parse a manifest; raises a ValueError if it is invalid."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    if content.get("format") != FORMAT:
        raise ValueError(f"unsupported format {content.get('format')}, expected {FORMAT}")
    if content.pop("check", None) != _check(content):
        raise ValueError("its hash does not match its content")
    files = {name: File(**row) for name, row in content["files"].items()}
    manifest = Manifest(**content | {"files": files})
    _validate(manifest)
    if manifest.text() != text:  # e.g. changed whitespace
        raise ValueError("it was modified after it was written")
    return manifest


def _validate(manifest: Manifest) -> None:
    """Raise ValueError if a field has a value that a run would never write."""
    for name in ("update", "epoch", "step"):
        value = vars(manifest)[name]
        if type(value) is not int or not -1 <= value < 2**53:  # step is -1 before the first step
            raise ValueError(f"{name} is not a valid count")
    texts = [manifest.time, manifest.kind, manifest.metric, manifest.mode, *manifest.why]
    if not isinstance(manifest.why, list) or not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("time, kind, why, metric and mode must be printable text")
    if type(manifest.value) not in (int, float, type(None)):
        raise ValueError("value is not a number")
    for name, file in manifest.files.items():
        if "/" in name or not name.isprintable() or name in ("", ".", "..", MANIFEST):
            raise ValueError(f"{name!r} is not a file name inside the folder")
        if type(file.bytes) is not int:
            raise ValueError(f"the size of {name} is not a number")


def read_parts(folder: Path) -> dict[str, Any]:
    """Read the state of all parts from `state.json`; raises a ValueError or an OSError if it is damaged."""
    parts = read_table(folder / STATE, LARGEST_STATE).get("parts")
    if not isinstance(parts, dict):
        raise ValueError("it has no parts")
    return parts


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a checkpoint; raises a ValueError if it is missing or invalid."""
    try:
        return _parse(read_bytes(folder / MANIFEST).decode("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"it has no {MANIFEST}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"invalid {MANIFEST}: {error}") from error


def verify(folder: str | Path, *, contents: bool = True) -> str:
    """Return why a checkpoint is invalid, or an empty string if valid. Without `contents`, check only file sizes."""
    folder, name = Path(folder), MANIFEST
    try:
        manifest = read_manifest(folder)
        named = FOLDER.fullmatch(folder.name)
        if named and manifest.kind == WHOLE and int(named[1]) != manifest.update:
            return f"its name refers to update {named[1][:20]}, but its manifest to update {manifest.update}"
        for name, stated in manifest.files.items():
            size = (folder / name).stat().st_size
            if size != stated.bytes:
                return f"{name} has {size:,} bytes, expected {stated.bytes:,}"
            if contents and hash_file(folder / name) != stated.sha256:
                return f"the content of {name} has changed: its hash does not match the manifest"
        if contents and STATE in manifest.files:
            name = STATE
            read_parts(folder)
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"cannot read {name}: {error.strerror or error}"
    except ValueError as error:
        return str(error) if name == MANIFEST else f"cannot read {name}: {error}"
    return ""


def checkpoints(state_dir: str | Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first, valid or not."""
    try:
        found = [path for path in Path(state_dir).iterdir() if FOLDER.fullmatch(path.name)]
    except OSError:  # missing or not readable
        return []
    return sorted(found, key=parse_name)


def newest_valid(state_dir: str | Path, kind: str = WHOLE) -> tuple[Path | None, list[str]]:
    """Return the latest valid checkpoint, and a message for each newer checkpoint that was skipped.

    `kind=""` also accepts checkpoints that contain only weights.
    """
    skipped: list[str] = []
    for folder in reversed(checkpoints(state_dir)):
        reason = verify(folder)
        if not reason and kind and read_manifest(folder).kind != kind:
            reason = "it contains only weights"
        if not reason:
            return folder, skipped
        skipped.append(f"skipping {folder.parent.name}/{folder.name}: {reason}")
    return None, skipped


def free_name(state_dir: Path, update: int) -> str:
    """Return `u<update>`, or `u<update>-<n>` if that exists, since checkpoints are never overwritten."""
    ages = [parse_name(path) for path in checkpoints(state_dir)]
    count = max((n for own, n in ages if own == update), default=0) + 1
    return f"u{update}" if count == 1 else f"u{update}-{count}"


def clear_leftovers(state_dir: Path) -> list[str]:
    """Remove the temporary folders of an interrupted save, and restore the links that it was replacing."""
    for link in LINKS:
        with contextlib.suppress(OSError):  # saving will report a folder that is not writable
            recover_folder(state_dir / link, alone=True)
    leftovers = sorted(state_dir.glob(f"{TEMPORARY}*"))
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in leftovers]


def parse_name(folder: Path) -> tuple[int, int]:
    """Return the update and the counter in the name of a checkpoint."""
    match = FOLDER.fullmatch(folder.name)
    assert match is not None
    return int(match[1]), int(match[2] or 1)


def _check(content: dict[str, Any]) -> str:
    return hash_text(json.dumps(content, sort_keys=True))
