"""What a checkpoint folder says about itself, and whether that is true; reads no tensor and needs no torch."""

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
LARGEST_STATE = 2**30  # bytes of JSON; tensors are elsewhere
TEMPORARY = ".tmp-"
WHOLE, WEIGHTS = "whole", "weights"
LINKS = ("best", "last")
FOLDER = re.compile(r"u(\d+)(?:-(\d+))?")


class Where(NamedTuple):
    """A place in a run: updates made so far, the epoch and the last step, both counted from 0."""

    update: int
    epoch: int
    step: int


class Best(NamedTuple):
    """The evaluation with the best value of the number that a training monitors, with all its scores."""

    metric: str
    value: float
    where: Where
    scores: Mapping[str, float]


class File(NamedTuple):
    bytes: int
    sha256: str


@dataclass
class Manifest:
    """One checkpoint: when, why, and every file with its size and hash."""

    update: int
    epoch: int
    step: int
    time: str
    kind: str = WHOLE  # or "weights", from which a run cannot go on
    why: list[str] = field(default_factory=list)  # every, best, end, signal, ..
    metric: str = ""
    value: float | None = None
    mode: str = ""  # whether more of the metric is better, "max", or less
    files: dict[str, File] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def text(self) -> str:
        """As it is written: with the hash of all else in it, so that a changed letter is seen."""
        files = {name: {"bytes": file.bytes, "sha256": file.sha256} for name, file in sorted(self.files.items())}
        content = {"format": self.format} | vars(self) | {"files": files}
        return json.dumps({**content, "check": _check(content)}, indent=1) + "\n"


def _parse(text: str) -> Manifest:
    """The manifest that `text` is; a ValueError that says why it is none."""
    content = parse_json(text)
    if not isinstance(content, dict):
        raise ValueError("it is no table")
    if content.get("format") != FORMAT:
        raise ValueError(f"it has format {content.get('format')}, this version reads {FORMAT}")
    if content.pop("check", None) != _check(content):
        raise ValueError("its own hash does not fit its content")
    files = {name: File(**row) for name, row in content["files"].items()}
    manifest = Manifest(**content | {"files": files})
    _refuse_strange(manifest)
    if manifest.text() != text:  # letters that say nothing, but that nobody has written
        raise ValueError("it is not as it was written")
    return manifest


def _refuse_strange(manifest: Manifest) -> None:
    """Raises a ValueError where a field is not what a run writes, so that nobody else has to check."""
    for name in ("update", "epoch", "step"):
        value = vars(manifest)[name]
        if type(value) is not int or not -1 <= value < 2**53:  # before the first step it is step -1
            raise ValueError(f"{name} is not a count")
    texts = [manifest.time, manifest.kind, manifest.metric, manifest.mode, *manifest.why]
    if not isinstance(manifest.why, list) or not all(isinstance(text, str) and text.isprintable() for text in texts):
        raise ValueError("time, kind, why, metric and mode must be printable text")
    if type(manifest.value) not in (int, float, type(None)):
        raise ValueError("value is not a number")
    for name, file in manifest.files.items():
        if "/" in name or not name.isprintable() or name in ("", ".", "..", MANIFEST):
            raise ValueError(f"{name!r} is not the name of a file in its folder")
        if type(file.bytes) is not int:
            raise ValueError(f"the size of {name} is not a number")


def read_parts(folder: Path) -> dict[str, Any]:
    """The state of all parts, as `state.json` has it; raises a ValueError or an OSError where it is damaged."""
    parts = read_table(folder / STATE, LARGEST_STATE).get("parts")
    if not isinstance(parts, dict):
        raise ValueError("it has no table of parts")
    return parts


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint; a ValueError says in one sentence why there is none."""
    try:
        return _parse(read_bytes(folder / MANIFEST).decode("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"it has no {MANIFEST}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{MANIFEST} cannot be trusted: {error}") from error


def verify(folder: str | Path, *, contents: bool = True) -> str:
    """Why a checkpoint is not valid, in one sentence, or nothing. Without `contents` only sizes are looked at."""
    folder, name = Path(folder), MANIFEST
    try:
        manifest = read_manifest(folder)
        named = FOLDER.fullmatch(folder.name)
        if named and manifest.kind == WHOLE and int(named[1]) != manifest.update:
            return f"its name says update {named[1][:20]}, its manifest {manifest.update}"
        for name, stated in manifest.files.items():
            size = (folder / name).stat().st_size
            if size != stated.bytes:
                return f"{name} has {size:,} bytes, its manifest says {stated.bytes:,}"
            if contents and hash_file(folder / name) != stated.sha256:
                return f"the content of {name} has changed: its hash is not the one in the manifest"
        if contents and STATE in manifest.files:
            name = STATE
            read_parts(folder)
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror or error}"
    except ValueError as error:
        return str(error) if name == MANIFEST else f"{name} cannot be read: {error}"
    return ""


def checkpoints(state_dir: str | Path) -> list[Path]:
    """The checkpoint folders of a run, oldest first, whether valid or not."""
    try:
        found = [path for path in Path(state_dir).iterdir() if FOLDER.fullmatch(path.name)]
    except OSError:  # there are none, or none that can be seen
        return []
    return sorted(found, key=age)


def newest_valid(state_dir: str | Path, kind: str = WHOLE) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is complete, and a sentence for each newer one that was passed over.

    `kind=""` takes one that holds only weights, too.
    """
    passed: list[str] = []
    for folder in reversed(checkpoints(state_dir)):
        reason = verify(folder)
        if not reason and kind and read_manifest(folder).kind != kind:
            reason = "it holds only weights"
        if not reason:
            return folder, passed
        passed.append(f"{folder.parent.name}/{folder.name} was passed over: {reason}")
    return None, passed


def free_name(state_dir: Path, update: int) -> str:
    """`u<update>`, or `u<update>-<n>` when that is taken: nothing is ever overwritten."""
    ages = [age(path) for path in checkpoints(state_dir)]
    count = max((n for own, n in ages if own == update), default=0) + 1
    return f"u{update}" if count == 1 else f"u{update}-{count}"


def clear_leftovers(state_dir: Path) -> list[str]:
    """Removes what a killed save left behind, and only that; puts a link back that was being swapped."""
    for link in LINKS:
        with contextlib.suppress(OSError):  # whoever cannot write here will hear of it when saving
            recover_folder(state_dir / link, alone=True)
    leftovers = sorted(state_dir.glob(f"{TEMPORARY}*"))
    for folder in leftovers:
        shutil.rmtree(folder, ignore_errors=True)
    return [folder.name for folder in leftovers]


def age(folder: Path) -> tuple[int, int]:
    """The update of a checkpoint by its name, and which one of that update it is."""
    match = FOLDER.fullmatch(folder.name)
    assert match is not None
    return int(match[1]), int(match[2] or 1)


def _check(content: dict[str, Any]) -> str:
    return hash_text(json.dumps(content, sort_keys=True))
