"""`ledger.jsonl`: which samples each update has seen, as hashes that prove it without listing them.

A row is `{update, epoch, n, ids, hash, set}`:

- `ids` is the blake2b hash of the sample numbers (int64, little endian) in the order of the update;
- `hash` is that of the `hash` before it and of `ids`: the chain, equal only if everything up to here is equal;
- `set` is the sum, modulo 2**64, of a mixed form of each number. It does not depend on the order, so the sets of an
  epoch must add up to that of 0..samples-1: then each sample was seen, and none twice.

The order of an update is: the first step of each process, in the order of the processes, then the second step, and so
on. However many processes a batch is cut for (into pieces that follow each other), and whoever is dealt which
micro-batch in turn, the numbers come out in the same order, and so the rows are the same. Data without numbers is known
by the contents of its batches: then `n` counts batches, there is no `set`, and the hashes depend on how it was cut.
"""

from __future__ import annotations

import hashlib
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from alchemy.errors import AlchemyError
from alchemy.null_objects import ProcessGroup, SingleProcess
from alchemy.records.jsonl_writer import Journalled, JsonlWriter, NoJsonlWriter, drop_superseded, encode, read_lines

if TYPE_CHECKING:
    import numpy as np

NAME = "ledger.jsonl"
START = bytes(16)  # what the chain hangs on
CHUNK = 2**20
MOST = 2**26  # samples of an update; a row with more would be believed for hours before its sum is known
ALONE = SingleProcess()

Piece: TypeAlias = "array[int] | bytes"  # the numbers of what a process saw in a step, or a digest of its contents
NOTHING: array[int] = array("q")


class Update(NamedTuple):
    """An update that waits to be written: what this process saw in each of its steps."""

    update: int
    epoch: int
    steps: list[Piece]


class Ledger(Journalled):
    """Writes down what was seen. All processes have one; that of the main process, the only one with a path, writes.

    All of them call the same methods at the same places, `saw` too: with no ids where a process had nothing to do.
    """

    def __init__(self, path: Path | None, group: ProcessGroup = ALONE) -> None:
        self._group = group
        self._journal: JsonlWriter | NoJsonlWriter = NoJsonlWriter() if path is None else JsonlWriter(path)
        self._is_main = path is not None
        self._hash, self._update = START, 0
        self._open: list[Piece] = []  # of the update that is being made
        self._elsewhere: list[list[Piece]] = []  # the same of the other processes, as of the last flush
        self._closed: list[Update | dict[str, Any]] = []
        self._kept = 0  # lines that a resume goes on from: none, unless a state was loaded
        self.calling = 0.0  # seconds that `flush` has taken from the loop
        self.sync, self.close, self.reopen = self._journal.sync, self._journal.close, self._journal.reopen

    def saw(self, ids: Sequence[int] | None, digest: Callable[[], bytes | None] | bytes | None = None) -> None:
        """A step of this process: the numbers of its own samples, none for a dummy, or the digest of a batch.

        A digest takes a while: who hands over a function spares it where nobody keeps a ledger, or the ids suffice.
        """
        if ids is not None:
            self._open.append(array("q", ids))
        else:
            self._open.append((digest() if callable(digest) else digest) or b"")

    def close_update(self, update: int, epoch: int) -> None:
        """The steps since the last call made update number `update`."""
        self._closed.append(Update(update, epoch, self._open))
        self._open, self._elsewhere, self._update = [], [], update

    def close_epoch(self, epoch: int, samples: int | None, left_out: Sequence[int] = ()) -> None:
        """An epoch is through: the numbers 0..samples-1 were seen, but for those that were left out on purpose.

        `samples` is None where the numbers are not known, or not meant to be seen once. Not called for an epoch that
        was cut short.
        """
        if self._open:  # a window that reaches into the next epoch: what this one saw belongs to it
            self.close_update(self._update + 1, epoch)
        row = {"event": "epoch", "epoch": epoch, "samples": samples, "update": self._update}
        self._closed.append(row | ({"left_out": list(left_out)} if left_out else {}))

    def flush(self) -> None:
        """Writes the updates closed so far, as all processes of the group saw them; all of them must call it."""
        begin = time.perf_counter()
        shares = self._group.gather((self._closed, self._open))
        self._closed = []
        if self._is_main:
            self._write([_joined(entries) for entries in zip(*(closed for closed, _ in shares), strict=True)])
            self._elsewhere = [opened for _, opened in shares[1:]]
        self.calling += time.perf_counter() - begin

    def _write(self, entries: list[Update | dict[str, Any]]) -> None:
        sets = iter(_sets([entry.steps for entry in entries if isinstance(entry, Update)]))
        rows = [self._row(entry, next(sets)) if isinstance(entry, Update) else encode(entry) for entry in entries]
        self._journal.append_lines(*rows)

    def _row(self, entry: Update, total: int | None) -> str:
        update, epoch, steps = entry
        digest = _digest(b"".join([piece if isinstance(piece, bytes) else _bytes(piece) for piece in steps]))
        self._hash = extend_chain(self._hash, digest)
        n = sum([1 if isinstance(piece, bytes) else len(piece) for piece in steps])
        whole = "null" if total is None else f'"{total:016x}"'
        # spelt out, since an encoder takes as long as all the hashes of the row
        head = f'{{"update": {update}, "epoch": {epoch}, "n": {n}, "ids": "{digest.hex()}"'
        return f'{head}, "hash": "{self._hash.hex()}", "set": {whole}}}'

    def state_dict(self) -> dict[str, Any]:
        """Where the chain stands, and what the update that is being made has seen; all processes must ask for it."""
        self.flush()
        opened = _in_order([self._open, *self._elsewhere])
        steps = [piece.hex() if isinstance(piece, bytes) else piece.tolist() for piece in opened]
        return {"hash": self._hash.hex(), "lines": self._journal.lines, "update": self._update, "open": steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._hash, self._kept, self._update = bytes.fromhex(state["hash"]), state["lines"], state["update"]
        self._open = [bytes.fromhex(step) if isinstance(step, str) else array("q", step) for step in state["open"]]
        if not self._is_main:  # the main process stands for all that were there: the others had nothing to do
            self._open = [NOTHING for _ in self._open]

    @property
    def missing(self) -> int:
        """How many lines that the loaded state counts are missing from the file."""
        return max(self._kept - self._journal.lines, 0) if self._is_main else 0

    def resume(self, gen: int, from_update: int) -> None:
        """Goes on from the state that was loaded: what was written after it does not count any more."""
        kept = self._kept - self.missing
        event = {"event": "resume", "gen": gen, "from_update": from_update, "from_line": kept}
        self._journal.append(event)


def read_ledger(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """`(line, row)` of all rows that count; a damaged line among them is an error, half a line at the end is not."""
    rows = []
    for line, row in drop_superseded(read_lines(path)):
        if row is None or not _is_row(row):
            hint = "the record was changed by hand, or its disk has lost data"
            raise AlchemyError("this line is no row of a ledger", where=f"{path}:{line}", hint=hint)
        rows.append((line, row))
    return rows


def _is_row(row: Mapping[str, Any]) -> bool:
    """Whether the numbers of a row are such as a run writes."""
    if type(row.get("update")) is not int or type(row.get("epoch")) is not int:
        return False
    if "event" in row:
        samples, left_out = row.get("samples"), row.get("left_out", [])
        return (samples is None or type(samples) is int) and _is_ids(left_out)
    n = row.get("n", 0)
    return type(n) is int and 0 <= n <= MOST and all(isinstance(row.get(key, ""), str) for key in ("ids", "hash"))


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**63 for number in value)


def extend_chain(before: bytes, digest: bytes) -> bytes:
    """The next link of the chain."""
    return _digest(before + digest)


def set_of(numbers: np.ndarray) -> int:
    """The sum of the mixed numbers: equal for the same numbers in any order."""
    return int(_mixed(numbers).sum(dtype="uint64"))


def set_of_range(count: int) -> int:
    """The same of 0..count-1."""
    import numpy as np

    parts = (np.arange(begin, min(begin + CHUNK, count), dtype=np.int64) for begin in range(0, count, CHUNK))
    return sum(map(set_of, parts)) % 2**64


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """splitmix64: numbers that lie side by side come out far apart, so that no two sums agree by chance."""
    mixed = numbers.view("uint64") + 0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    return mixed ^ (mixed >> 31)


def _sets(updates: list[list[Piece]]) -> list[int | None]:
    """The `set` of each update; all at once, since a call of numpy costs more than the numbers of an update."""
    import numpy as np

    flat, ends = array("q", [0]), []  # one number in front, so that each update has an end before its own
    for steps in updates:
        for piece in steps:
            if isinstance(piece, array):
                flat += piece
        ends.append(len(flat) - 1)
    sums = _mixed(np.frombuffer(flat, dtype=np.int64)).cumsum()
    ends_sums = [int(sums[0]), *sums[ends].tolist()]
    totals = ((end - begin) % 2**64 for begin, end in pairwise(ends_sums))
    return [None if any(isinstance(piece, bytes) for piece in steps) else t for steps, t in zip(updates, totals)]


def _joined(entries: Sequence[Update | dict[str, Any]]) -> Update | dict[str, Any]:
    """One entry of what all processes hold for the same update, or say at the end of the same epoch."""
    first = entries[0]
    if len(entries) == 1 or isinstance(first, dict):
        return first
    steps = _in_order([entry.steps for entry in entries if isinstance(entry, Update)])
    return Update(first.update, first.epoch, steps)


def _in_order(processes: list[list[Piece]]) -> list[Piece]:
    """Step by step, and in each step process by process."""
    return [piece for step in zip_longest(*processes, fillvalue=NOTHING) for piece in step]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _bytes(piece: array[int]) -> bytes:
    if sys.byteorder == "big":
        piece = piece[:]
        piece.byteswap()
    return piece.tobytes()
