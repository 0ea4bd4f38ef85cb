"""The folder of the cache: one folder for each kept set of samples, filled by one process while the others wait."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.data.cache.store import Stored, Unwritable, Writer, is_as_written, stamp, writing
from alchemy.files import hash_text, home, locked, sync_folder, write_atomic

FORMAT = 2
MANIFEST = "manifest.json"
FIRST_WORD, NEXT_WORD = 1.0, 30.0  # seconds after which a process that waits says so
Check = Literal[
    "sizes", "changed", "all"
]  # of which files the contents are compared: of none, those changed since, all
KEY = re.compile("[0-9a-f]+")
LEFTOVER = re.compile(r"\.(?P<key>\w+)\.(?:building-(?P<process>[0-9a-f]+)-|old-)\w+")


def cache_folder() -> Path:
    return home() / "cache"


@dataclass(frozen=True)
class Entry:
    """Samples that are kept, whole and ready to be read."""

    folder: Path
    key: str
    created: float
    launch: str  # what it was written by
    chain: list[str]  # the pipes, by name
    facts: dict[str, str]  # all that decides the samples
    layout: dict[str, Any]
    reads: dict[str, dict[str, list[Any]]] = field(default_factory=dict)  # what else was read, found while it was made
    moved: bool = False  # whether its files were copied or touched since it was written, and are the same all the same

    @property
    def samples(self) -> int:
        return int(self.layout["samples"])

    @property
    def bytes(self) -> int:
        return sum(size for _, size, *_ in self.layout["files"].values())

    @property
    def used(self) -> float:
        """When it was read last."""
        return max(self.created, _time(self.folder / MANIFEST))

    @property
    def data(self) -> list[str]:
        """The files that the samples were made of."""
        words = [name.partition(" ")[2] for name in self.facts if name.startswith(("the file ", "the files "))]
        return [word.partition(" ")[2] for word in words]

    def open(self, *, views: bool = False) -> Stored:
        return Stored(self.folder, self.layout, views=views)

    def touch(self) -> None:
        with contextlib.suppress(OSError):  # of somebody else
            if self.moved:  # so that its contents need not be compared again
                fields = {name: value for name, value in vars(self).items() if name not in ("folder", "moved")}
                write_atomic(self.folder / MANIFEST, _manifest(fields))
            os.utime(self.folder / MANIFEST)


@dataclass(frozen=True)
class Damaged:
    """What lies where an entry should, and cannot be read."""

    folder: Path
    why: str

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def bytes(self) -> int:
        with contextlib.suppress(OSError):
            return sum(path.stat().st_size for path in self.folder.iterdir())
        return 0

    @property
    def used(self) -> float:
        return _time(self.folder)


def look(folder: Path, check: Check = "sizes") -> Entry | Damaged | None:
    """What a folder holds; None where there is no folder."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
        if fields["format"] != FORMAT:
            return Damaged(folder, f"its format is {fields['format']}, expected {FORMAT}")
        if fields.pop("hash") != _hash(fields) or fields["key"] != folder.name:
            return Damaged(folder, f"{MANIFEST} is not as it was written")
        del fields["format"]
        stamps = [row[1:] for row in fields["layout"]["files"].values()]
        harm = _harm(folder, fields["layout"]["files"], check)
        moved = stamps != [row[1:] for row in fields["layout"]["files"].values()]
    except OSError as error:
        missing = os.path.basename(error.filename or "")
        return Damaged(folder, f"{missing}: {error.strerror}") if folder.is_dir() else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no JSON, or of something else
        return Damaged(folder, f"{MANIFEST} is not as it was written")
    return Damaged(folder, harm) if harm else Entry(folder=folder, **fields, moved=moved)


def _harm(folder: Path, files: dict[str, list[Any]], check: Check) -> str:
    """The file that is not as it was written. What was only copied or touched gets the stamp that it has now."""
    for name, known in files.items():
        now = stamp(folder / name)
        if now[0] != known[1]:
            return f"{name} has {now[0]:,} bytes, expected {known[1]:,}"
        if check == "all" or (check == "changed" and now != known[1:]):
            if not is_as_written(folder / name, known):
                return f"{name} is not as it was written"
            known[1:] = now
    return ""


def read_entry(folder: Path, check: Check = "changed") -> Entry | None:
    """The entry in a folder; None where there is none, or it is damaged."""
    found = look(folder, check)
    return found if isinstance(found, Entry) else None


def everything(root: Path, check: Check = "sizes") -> list[Entry | Damaged]:
    """All that is kept, and what is damaged, the oldest first."""
    folders = [folder for folder in root.iterdir() if KEY.fullmatch(folder.name)] if root.is_dir() else []
    found = [kept for folder in folders if (kept := look(folder, check)) is not None]
    return sorted(found, key=lambda kept: kept.created if isinstance(kept, Entry) else kept.used)


def entries(root: Path) -> list[Entry]:
    return [kept for kept in everything(root) if isinstance(kept, Entry)]


def _hash(fields: dict[str, Any]) -> str:
    return hash_text(json.dumps(fields, sort_keys=True))


def _time(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def remove(root: Path, keys: Iterable[str]) -> list[str]:
    """Removes entries, and tells which: not those that another process is writing anew.

    Whoever reads them goes on reading, since the files are mapped.
    """
    clear(root)
    removed = []
    for key in keys:
        with locked(_lock(root, key)) as free:
            if free:
                _discard(root / key)
                _lock(root, key).unlink(missing_ok=True)
                removed.append(key)
    return removed


def clear(root: Path, held: str = "") -> None:
    """Removes what processes that were killed have left behind; `held` is the key whose lock the caller has."""
    for folder in root.glob(".*") if root.is_dir() else ():
        match = LEFTOVER.fullmatch(folder.name)
        if match is None or match["process"] == _process():  # another thread of this one
            continue
        # a lock that is opened twice by one process is lost when one of them is closed
        with contextlib.nullcontext(True) if match["key"] == held else locked(_lock(root, match["key"])) as free:
            if free:
                shutil.rmtree(folder, ignore_errors=True)


def keep(
    root: Path,
    key: str,
    about: dict[str, Any],
    samples: Callable[[], Generator[Any, None, None]],
    *,
    accept: Callable[[Entry], bool] = lambda entry: True,
    before_naming: Callable[[], dict[str, Any]] = dict,
) -> tuple[Entry, bool]:
    """The entry of a key, and whether this process has made it: the first one does, the others wait for it.

    `accept` may refuse one that is there; `before_naming` is called when all is written, tells what is known only then,
    and may raise.
    Raises Unwritable and Unkept where it cannot be made.
    """
    with writing():
        root.mkdir(parents=True, exist_ok=True)
    with _turn(root, key):
        entry = read_entry(root / key)
        if entry is not None and accept(entry):
            return entry, False
        with writing():
            clear(root, held=key)
        with contextlib.closing(samples()) as read:
            return _filled(root, key, about, read, before_naming), True


def _filled(
    root: Path, key: str, about: dict[str, Any], samples: Iterable[Any], before_naming: Callable[[], dict[str, Any]]
) -> Entry:
    with _workshop(root, key) as folder:
        with writing():
            writer = Writer(folder)
        with writer:
            for sample in samples:
                with writing():
                    writer.add(sample)
            with writing():
                layout = writer.finish()
        made = {"key": key, "created": time.time(), "launch": launch()}
        fields = {**made, **about, **before_naming(), "layout": layout}
        with writing():
            write_atomic(folder / MANIFEST, _manifest(fields))
            _put(folder, root / key)
    entry = read_entry(root / key)
    if entry is None:
        raise Unwritable(f"{root / key} was removed while it was written")
    return entry


def _manifest(fields: dict[str, Any]) -> bytes:
    """Names of files and fields may hold what is no Unicode, and come back as they were."""
    fields = {"format": FORMAT, **fields}
    text = json.dumps({**fields, "hash": _hash(fields)}, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"


@contextlib.contextmanager
def _workshop(root: Path, key: str) -> Iterator[Path]:
    """A folder for what is unfinished, with a name of its own: what was killed never meets what is new."""
    with writing():
        folder = Path(tempfile.mkdtemp(prefix=f".{key}.building-{_process()}-", dir=root))
    try:
        os.chmod(folder, os.stat(root).st_mode & 0o777)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _put(folder: Path, target: Path) -> None:
    """Swaps at once: a reader finds the old one, nothing, or the new one, whole."""
    _discard(target)
    try:
        folder.rename(target)
    except OSError as error:
        # another process has put its own there: a lock that is removed with an entry keeps nobody apart
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    sync_folder(target.parent)


def _discard(target: Path) -> None:
    aside = target.with_name(f".{target.name}.old-{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        target.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _turn(root: Path, key: str) -> Iterator[None]:
    """Waits until nobody else fills the entry. The lock of a process that dies is free at once."""
    begin, word = time.monotonic(), FIRST_WORD
    while True:
        with contextlib.ExitStack() as stack:
            with writing():
                free = stack.enter_context(locked(_lock(root, key)))
            if free:
                yield
                return
        waited = time.monotonic() - begin
        if waited >= word:
            logger.info("cache {}: another process is filling it; waited {:.0f} s", short(key), waited)
            word += NEXT_WORD
        time.sleep(min(0.5, 0.02 + waited / 20))


def _lock(root: Path, key: str) -> Path:
    return root / f".{key}.lock"


@functools.cache
def _token(pid: int) -> str:
    return uuid.uuid4().hex


def _process() -> str:
    """A name that no other process has, not even one that was forked, or had the same number."""
    return _token(os.getpid())


def launch() -> str:
    """What tells one start of a program from another; the ranks of one start have it in common."""
    env = os.environ
    if int(env.get("WORLD_SIZE", "1")) < 2:
        return _process()
    words = (os.getppid(), *(env.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")))
    return "/".join(map(str, (*words, env.get("TORCHELASTIC_RESTART_COUNT", ""))))


def short(key: str) -> str:
    """A key as it is shown."""
    return key[:12]


def told_age(seconds: float) -> str:
    """An age in words.

    >>> told_age(7300), told_age(3 * 86400)
    ('2 hours', '3 days')
    """
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size or unit == "second":
            number = int(max(seconds, 0) // size)
            return f"{number} {unit}{'' if number == 1 else 's'}"
    raise AssertionError


def told_size(count: float) -> str:
    """A size in words.

    >>> told_size(1_300_000)
    '1.3 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def nearest(chain: Sequence[str], facts: dict[str, str], among: Iterable[Entry]) -> Entry | None:
    """The entry of the same chain that differs least, and of those the newest."""
    alike = [entry for entry in among if entry.chain == list(chain)]
    return min(alike, key=lambda entry: (len(facts.items() ^ entry.facts.items()), -entry.created), default=None)
