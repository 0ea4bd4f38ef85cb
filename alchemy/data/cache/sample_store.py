"""Write samples to a folder and read them back, bit for bit, through memory maps."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from alchemy.data.corpus.layout import map_file
from alchemy.errors import AlchemyError
from alchemy.files import hash_text

MANIFEST = "manifest.json"
SAMPLES, ENDS, ARRAYS, LENGTHS = "samples.bin", "ends.bin", "arrays.bin", "lengths.bin"
SIMPLE = "biufcSUmM"  # kinds of NumPy dtypes that are fully described by their bytes
ALIGNMENT = 16
BUFFER = 2**18


class NotCacheable(Exception):
    """Raised when a sample or a chain cannot be cached; the message explains why."""


class CacheNotWritable(Exception):
    """Raised when the disk is full or not writable."""


class CacheRemoved(AlchemyError):
    """Raised when the files of a cache entry were removed or replaced before they were opened."""


class SampleWriter(contextlib.AbstractContextManager["SampleWriter"]):
    """Writes samples to a folder, using constant memory.

    `samples.bin` contains one pickle per sample, which refers to `arrays.bin` for array data. `ends.bin` contains a 0
    followed by the end offset of each pickle. `lengths.bin` has one row per sample with the lengths of its fields.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = (SAMPLES, ENDS, ARRAYS, LENGTHS)
        self.files = {name: open(folder / name, "wb", buffering=BUFFER) for name in names}  # noqa: SIM115 see __exit__
        self.pickler = _Pickler(self.files[SAMPLES], self.files[ARRAYS])
        self.fields: list[str] = []
        self.known = np.empty(0, bool)  # which fields had a length in every sample so far
        self.count = 0
        self.files[ENDS].write(bytes(8))

    def __exit__(self, *error: object) -> None:
        for file in self.files.values():
            with contextlib.suppress(OSError):  # e.g. a full disk, already reported by the first error
                file.close()

    def add(self, sample: Any) -> None:
        if not self.count and isinstance(sample, dict):
            self.fields = [name for name in sample if isinstance(name, str)]
            self.known = np.ones(len(self.fields), bool)
        try:
            self.pickler.dump(sample)
        except NotCacheable as error:
            raise NotCacheable(f"cannot store {error} (sample {self.count}{self._find_field(sample)})") from None
        except (RecursionError, ValueError) as error:
            raise NotCacheable(f"sample {self.count} is nested too deeply or contains itself: {error}") from None
        self.files[ENDS].write(self.files[SAMPLES].tell().to_bytes(8, "little"))
        if self.fields:
            lengths = _measure_fields(sample, self.fields)
            self.known &= lengths >= 0
            self.files[LENGTHS].write(lengths.tobytes())
        self.count += 1

    def _find_field(self, sample: Any) -> str:
        """Return the field that cannot be written, formatted for a message. The writer is unusable afterwards."""
        for name, value in sample.items() if isinstance(sample, dict) else ():
            try:
                self.pickler.dump(value)
            except NotCacheable:
                return f", field {name!r}"
        return ""

    def finish(self) -> dict[str, Any]:
        """Flush everything to disk and return the layout for the manifest."""
        files = {}
        for name, file in self.files.items():
            file.flush()
            os.fsync(file.fileno())
            files[name] = [_hash_of(self.folder / name), file.tell()]
        return {"samples": self.count, "files": files, "fields": self.fields, "known": self.known.tolist()}


def is_as_written(path: Path, known: Sequence[Any]) -> bool:
    """Return whether a file still has the hash it had when it was written."""
    return _hash_of(path) == str(known[0])


def _hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, functools.partial(hashlib.blake2b, digest_size=16)).hexdigest()


# -- values: pickles of built-in types; unpickling can only call `_array_at`


class _Pickler(pickle.Pickler):
    def __init__(self, file: IO[bytes], arrays: IO[bytes]) -> None:
        super().__init__(file, protocol=5)
        self.arrays = arrays
        self.fast = True  # no memo: equal samples produce equal bytes, even if some of their parts are shared

    def reducer_override(self, value: Any) -> Any:
        """Replace arrays with references; raise for every other value that is not of a built-in type."""
        if value is _array_at:
            return NotImplemented
        flavor, array = _as_array(value)
        self.arrays.write(bytes(-self.arrays.tell() % ALIGNMENT))
        begin = self.arrays.tell()
        self.arrays.write(array.tobytes())
        return _array_at, (flavor, array.dtype.str, array.shape, begin)


def _as_array(value: Any) -> tuple[str, np.ndarray]:
    torch = sys.modules.get("torch")  # if torch was never imported, the value is not a tensor
    if torch is not None and type(value) is torch.Tensor:
        if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
            raise NotCacheable("a tensor that is sparse, not on the CPU or requires grad")
        try:
            flavor, array = "tensor", value.resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise NotCacheable(f"a tensor of {value.dtype}") from None
    elif type(value) in (np.ndarray, np.memmap):
        flavor, array = "array", np.asarray(value)
    elif isinstance(value, np.generic) and not isinstance(value, np.void | np.object_):
        flavor, array = "scalar", np.asarray(value)
    else:
        raise NotCacheable(f"a {type(value).__module__}.{type(value).__qualname__}")
    if array.dtype.kind not in SIMPLE or not array.dtype.itemsize:
        raise NotCacheable(f"an array of {array.dtype}")
    return flavor, array


def _array_at(arrays: np.ndarray, views: bool, flavor: str, dtype: str, shape: tuple[int, ...], begin: int) -> Any:
    """Return the array, tensor or NumPy scalar whose bytes start at `begin`."""
    kind = np.dtype(dtype)
    end = begin + kind.itemsize * math.prod(shape)
    view = arrays[begin:end].view(kind).reshape(shape)
    if flavor == "scalar":
        return view[()]
    if flavor == "tensor":
        import torch

        return torch.from_numpy(view.copy())
    return view if views else view.copy()


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, make: Callable[..., Any]) -> None:
        super().__init__(io.BytesIO(content))
        self.make = make

    def find_class(self, module: str, name: str) -> Any:
        if name != _array_at.__name__:
            raise pickle.UnpicklingError(f"a cached sample tries to call {module}.{name}")
        return self.make


def _measure_fields(sample: Any, fields: Sequence[str]) -> np.ndarray:
    """Return the length of the first axis of each numeric field, as used for padding; -1 for other fields."""
    from alchemy.data.padding import as_array

    def length(value: Any) -> int:
        with contextlib.suppress(AlchemyError):  # padding will report the error
            array = as_array(value)
            return len(array) if array is not None and array.ndim else -1
        return -1

    values = sample if isinstance(sample, dict) else {}
    return np.array([length(values.get(name)) for name in fields], "<i4")


# -- reading


class Stored(Sequence[Any]):
    """Memory-mapped samples. Workers, forked or spawned, map the files themselves.

    With `views`, arrays are read-only views of the file instead of copies. The files are mapped immediately, or in
    spawned workers when they read the first sample. Raises CacheRemoved if they are missing or were replaced by then.
    """

    def __init__(self, folder: Path, layout: dict[str, Any], *, views: bool = False) -> None:
        self.folder, self.layout, self.views = folder, layout, views
        _ = self._files

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "layout": self.layout, "views": self.views}  # memory maps are not pickled

    @functools.cached_property
    def _files(self) -> tuple[np.ndarray, np.ndarray, Callable[..., Any]]:
        try:
            samples, arrays = (self._map(name, "|u1") for name in (SAMPLES, ARRAYS))
            ends = self._map(ENDS, "<i8")
            # checked after mapping, because another process may replace the files until then
            same = json.loads((self.folder / MANIFEST).read_bytes())["layout"] == self.layout
        except (OSError, ValueError):
            same = False
        if not same:
            hint = "start the run again; do not remove a cache entry while a run with spawned workers reads it"
            raise CacheRemoved(f"cache {self.folder.name[:12]} was removed or rewritten while in use", hint=hint)
        return samples, ends, functools.partial(_array_at, arrays, self.views)

    def _map(self, name: str, dtype: str) -> np.ndarray:
        return map_file(self.folder / name, dtype, self.layout["files"][name][1] // np.dtype(dtype).itemsize)

    @property
    def digest(self) -> str:
        """A hash of the samples; equal samples have equal hashes."""
        return hash_text(json.dumps([self.layout["files"][name] for name in (SAMPLES, ARRAYS)]))

    def lengths(self) -> dict[str, np.ndarray]:
        """Return the lengths of each numeric field that every sample has, without reading the samples."""
        fields, known = self.layout["fields"], self.layout["known"]
        columns = self._map(LENGTHS, "<i4").reshape(-1, max(len(fields), 1)).T
        return {name: column for name, column, is_known in zip(fields, columns, known) if is_known}

    def __len__(self) -> int:
        count: int = self.layout["samples"]
        return count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"sample {index} is out of range for {len(self)} samples")
        samples, ends, make = self._files
        begin, end = ends[row : row + 2].tolist()
        return _Unpickler(samples[begin:end].tobytes(), make).load()
