"""The folder of the cache: one folder for each kept set of samples, filled by one process while the others wait."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.data.cache.store import Stored, Unwritable, Writer, writing
from alchemy.files import home, locked, sync_folder, write_atomic

FORMAT = 1
MANIFEST = "manifest.json"
FIRST_WORD, NEXT_WORD = 1.0, 30.0  # seconds after which a process that waits says so
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

    @property
    def samples(self) -> int:
        return int(self.layout["samples"])

    @property
    def bytes(self) -> int:
        return sum(self.layout["files"].values())

    @property
    def used(self) -> float:
        """When it was read last."""
        with contextlib.suppress(OSError):
            return max(self.created, (self.folder / MANIFEST).stat().st_mtime)
        return self.created

    @property
    def data(self) -> list[str]:
        """The files that the samples were made of."""
        words = [name.partition(" ")[2] for name in self.facts if name.startswith(("the file ", "the files "))]
        return [word.partition(" ")[2] for word in words]

    def open(self, *, views: bool = False) -> Stored:
        return Stored(self.folder, self.layout, views=views)

    def touch(self) -> None:
        with contextlib.suppress(OSError):  # of somebody else
            os.utime(self.folder / MANIFEST)


def read_entry(folder: Path) -> Entry | None:
    """The entry in a folder; None where there is none, or not all of it."""
    try:
        fields = json.loads((folder / MANIFEST).read_bytes())
        if fields.pop("format") != FORMAT:
            return None
        entry = Entry(folder=folder, **fields)
        whole = all((folder / name).stat().st_size == size for name, size in entry.layout["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return entry if whole and entry.key == folder.name else None


def entries(root: Path) -> list[Entry]:
    """All that is kept, the oldest first."""
    folders = root.iterdir() if root.is_dir() else ()
    found = (read_entry(folder) for folder in folders if not folder.name.startswith("."))
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.created)


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
    before_naming: Callable[[], None] = lambda: None,
) -> tuple[Entry, bool]:
    """The entry of a key, and whether this process has made it: the first one does, the others wait for it.

    `accept` may refuse one that is there; `before_naming` is called when all is written, and may raise.
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
    root: Path, key: str, about: dict[str, Any], samples: Iterable[Any], before_naming: Callable[[], None]
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
        manifest = {"format": FORMAT, "key": key, "created": time.time(), "launch": launch(), **about, "layout": layout}
        before_naming()
        with writing():
            write_atomic(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False) + "\n")
            _put(folder, root / key)
    entry = read_entry(root / key)
    if entry is None:
        raise Unwritable(f"{root / key} was removed while it was written")
    return entry


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
    folder.rename(target)
    sync_folder(target.parent)


def _discard(target: Path) -> None:
    if target.exists():
        aside = target.with_name(f".{target.name}.old-{uuid.uuid4().hex}")
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
