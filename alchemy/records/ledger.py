"""Write and read `ledger.jsonl`, which records the samples of each update as hashes.

A row is `{update, epoch, n, ids, hash, set}`:

- `ids` is the blake2b hash of the sample ids (int64, little endian) in the order of the update;
- `hash` is the hash of the previous `hash` and `ids`; in this chain, hashes match only if all earlier rows match;
- `set` is the sum, modulo 2**64, of the mixed sample ids. It does not depend on their order. If each sample was seen
  exactly once, the sets of an epoch add up to the set of 0..samples-1.

An update lists the first step of each process, in rank order, then the second step, and so on. The ids therefore have
the same order, and the rows are equal, for any number of processes, whether a batch is split into contiguous pieces or
the micro-batches are assigned to processes in turn. Data without sample ids is identified by the contents of
its batches: `n` then counts batches, there is no `set`, and the hashes depend on how the batches are split.
"""

from __future__ import annotations

import hashlib
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from alchemy.errors import AlchemyError
from alchemy.null_objects import ProcessGroup, SingleProcess
from alchemy.records.jsonl_writer import JournaledMixin, JsonlWriter, NoJsonlWriter, encode, read_valid_lines

if TYPE_CHECKING:
    import numpy as np

NAME = "ledger.jsonl"
START = bytes(16)  # initial value of the chain
CHUNK = 2**20
MAX_SAMPLES = 2**26  # per update; with more, verifying a forged row would take hours
ALONE = SingleProcess()

Piece: TypeAlias = "array[int] | bytes"  # the sample ids of one step in one process, or a digest of its batch
NOTHING: array[int] = array("q")


class Update(NamedTuple):
    """An update waiting to be written: the samples that this process saw in each of its steps."""

    update: int
    epoch: int
    steps: list[Piece]


class Ledger(JournaledMixin):
    """Records the samples of each update. Every process has a ledger; only the main process writes to a file.

    All processes must make the same calls in the same order; a process without samples calls `add_step` with no ids.
    """

    def __init__(self, path: Path | None, group: ProcessGroup = ALONE) -> None:
        self._group = group
        self._journal: JsonlWriter | NoJsonlWriter = NoJsonlWriter() if path is None else JsonlWriter(path)
        self._is_main = path is not None
        self._hash, self._update = START, 0
        self._steps: list[Piece] = []  # steps of the current update
        self._other_steps: list[list[Piece]] = []  # steps of the other processes, as of the last flush
        self._closed: list[Update | dict[str, Any]] = []
        self._kept = 0  # lines counted by the loaded state; 0 if no state was loaded
        self.calling = 0.0  # seconds spent in `flush`
        self.sync, self.close, self.reopen = self._journal.sync, self._journal.close, self._journal.reopen

    def add_step(self, ids: Sequence[int] | None, digest: Callable[[], bytes | None] | bytes | None = None) -> None:
        """Add a step of this process: its sample ids (empty for a dummy batch), or the digest of its batch.

        A digest is slow to compute: pass a function, which is called only if a ledger is written and there are no ids.
        """
        if ids is not None:
            self._steps.append(array("q", ids))
        else:
            self._steps.append((digest() if callable(digest) else digest) or b"")

    def close_update(self, update: int, epoch: int) -> None:
        """Combine the steps since the last call into update number `update`."""
        self._closed.append(Update(update, epoch, self._steps))
        self._steps, self._other_steps, self._update = [], [], update

    def close_epoch(self, epoch: int, samples: int | None, left_out: Sequence[int] = ()) -> None:
        """End an epoch in which each of the ids 0..samples-1 was seen, except ids `left_out` on purpose.

        `samples` is None if the ids are unknown, or if samples may be skipped or seen more than once. Not called for an
        epoch that ended early.
        """
        if self._steps:  # gradient accumulation continues into the next epoch: these samples belong to this one
            self.close_update(self._update + 1, epoch)
        row = {"event": "epoch", "epoch": epoch, "samples": samples, "update": self._update}
        self._closed.append(row | ({"left_out": list(left_out)} if left_out else {}))

    def flush(self) -> None:
        """Write the closed updates of all processes. This is a collective call: every process must make it."""
        begin = time.perf_counter()
        shares = self._group.gather((self._closed, self._steps))
        self._closed = []
        if self._is_main:
            self._write([_merge_entries(entries) for entries in zip(*(closed for closed, _ in shares), strict=True)])
            self._other_steps = [opened for _, opened in shares[1:]]
        self.calling += time.perf_counter() - begin

    def _write(self, entries: list[Update | dict[str, Any]]) -> None:
        sets = iter(_sum_updates([entry.steps for entry in entries if isinstance(entry, Update)]))
        rows = [self._row(entry, next(sets)) if isinstance(entry, Update) else encode(entry) for entry in entries]
        self._journal.append_lines(*rows)

    def _row(self, entry: Update, total: int | None) -> str:
        update, epoch, steps = entry
        digest = _digest(b"".join([piece if isinstance(piece, bytes) else _bytes(piece) for piece in steps]))
        self._hash = extend_chain(self._hash, digest)
        n = sum([1 if isinstance(piece, bytes) else len(piece) for piece in steps])
        whole = "null" if total is None else f'"{total:016x}"'
        # formatted by hand, because a JSON encoder would take as long as all hashes of the row
        head = f'{{"update": {update}, "epoch": {epoch}, "n": {n}, "ids": "{digest.hex()}"'
        return f'{head}, "hash": "{self._hash.hex()}", "set": {whole}}}'

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the chain and the samples of the current update. This is a collective call."""
        self.flush()
        opened = _interleave([self._steps, *self._other_steps])
        steps = [piece.hex() if isinstance(piece, bytes) else piece.tolist() for piece in opened]
        return {"hash": self._hash.hex(), "lines": self._journal.lines, "update": self._update, "open": steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._hash, self._kept, self._update = bytes.fromhex(state["hash"]), state["lines"], state["update"]
        self._steps = [bytes.fromhex(step) if isinstance(step, str) else array("q", step) for step in state["open"]]
        if not self._is_main:  # the main process restores the steps of all processes
            self._steps = [NOTHING for _ in self._steps]

    @property
    def missing(self) -> int:
        """The number of lines that the loaded state counts but the file lacks."""
        return max(self._kept - self._journal.lines, 0) if self._is_main else 0

    def resume(self, gen: int, from_update: int) -> None:
        """Resume from the loaded state: supersede the rows written after it."""
        kept = self._kept - self.missing
        event = {"event": "resume", "gen": gen, "from_update": from_update, "from_line": kept}
        self._journal.append(event)


def read_ledger(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    """Return `(line, row)` for all valid rows; raise an error on a damaged line, except an incomplete last line."""
    return list(iterate_ledger(path))


def iterate_ledger(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Like `read_ledger`, but yield the rows one by one."""
    for line, row in read_valid_lines(path):
        if row is None or not _is_row(row):
            hint = "the record was edited, or its disk lost data"
            raise AlchemyError("not a ledger row", where=f"{path}:{line}", hint=hint)
        yield line, row


def _is_row(row: Mapping[str, Any]) -> bool:
    """Return whether the fields of a row have valid types and ranges."""
    if type(row.get("update")) is not int or type(row.get("epoch")) is not int:
        return False
    if "event" in row:
        samples, left_out = row.get("samples"), row.get("left_out", [])
        return (samples is None or type(samples) is int) and _is_ids(left_out)
    n = row.get("n", 0)
    return (
        type(n) is int and 0 <= n <= MAX_SAMPLES and all(isinstance(row.get(key, ""), str) for key in ("ids", "hash"))
    )


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(number) is int and 0 <= number < 2**63 for number in value)


def extend_chain(before: bytes, digest: bytes) -> bytes:
    """Return the next hash of the chain."""
    return _digest(before + digest)


def sum_ids(numbers: np.ndarray) -> int:
    """Return the sum of the mixed ids, which does not depend on their order."""
    return int(_mix(numbers).sum(dtype="uint64"))


def sum_range(count: int) -> int:
    """Return the sum of the mixed ids 0..count-1."""
    import numpy as np

    parts = (np.arange(begin, min(begin + CHUNK, count), dtype=np.int64) for begin in range(0, count, CHUNK))
    return sum(map(sum_ids, parts)) % 2**64


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Mix ids with splitmix64, which maps nearby ids to distant values, so that sums are unlikely to collide."""
    mixed = numbers.view("uint64") + 0x9E3779B97F4A7C15
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB
    return mixed ^ (mixed >> 31)


def _sum_updates(updates: list[list[Piece]]) -> list[int | None]:
    """Return the `set` of each update. All are computed together, since numpy calls cost more than the sums."""
    import numpy as np

    flat, ends = array("q", [0]), []  # the leading element serves as the end before the first update
    for steps in updates:
        for piece in steps:
            if isinstance(piece, array):
                flat += piece
        ends.append(len(flat) - 1)
    sums = _mix(np.frombuffer(flat, dtype=np.int64)).cumsum()
    ends_sums = [int(sums[0]), *sums[ends].tolist()]
    totals = ((end - begin) % 2**64 for begin, end in pairwise(ends_sums))
    return [None if any(isinstance(piece, bytes) for piece in steps) else t for steps, t in zip(updates, totals)]


def _merge_entries(entries: Sequence[Update | dict[str, Any]]) -> Update | dict[str, Any]:
    """Merge the entries of all processes for the same update, or for the end of the same epoch."""
    first = entries[0]
    if len(entries) == 1 or isinstance(first, dict):
        return first
    steps = _interleave([entry.steps for entry in entries if isinstance(entry, Update)])
    return Update(first.update, first.epoch, steps)


def _interleave(processes: list[list[Piece]]) -> list[Piece]:
    """Order pieces by step, then by process."""
    return [piece for step in zip_longest(*processes, fillvalue=NOTHING) for piece in step]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _bytes(piece: array[int]) -> bytes:
    if sys.byteorder == "big":
        piece = piece[:]
        piece.byteswap()
    return piece.tobytes()
