"""Samples in a folder: written one after the other, mapped when they are read, equal to the last bit."""

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

from alchemy.data.corpus.layout import mapped
from alchemy.errors import AlchemyError
from alchemy.files import hash_text

MANIFEST = "manifest.json"
SAMPLES, ENDS, ARRAYS, LENGTHS = "samples.bin", "ends.bin", "arrays.bin", "lengths.bin"
SIMPLE = "biufcSUmM"  # kinds of numpy dtypes whose bytes are all there is to them
ALIGNMENT = 16
BUFFER = 2**18


class Unkept(Exception):
    """A sample, or a chain, that cannot be kept, and why."""


class Unwritable(Exception):
    """The disk is full, or may not be written to."""


class Gone(AlchemyError):
    """The files were removed, or replaced by others, before they were opened."""


class SampleWriter(contextlib.AbstractContextManager["SampleWriter"]):
    """Writes samples into a folder; memory does not grow with their number.

    `samples.bin` holds one pickle for each sample, which refers to `arrays.bin` for the numbers of arrays; `ends.bin`
    says where each pickle ends, after a 0; `lengths.bin` has a row for each sample with the lengths of its fields.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = (SAMPLES, ENDS, ARRAYS, LENGTHS)
        self.files = {name: open(folder / name, "wb", buffering=BUFFER) for name in names}  # noqa: SIM115 see __exit__
        self.pickler = _Pickler(self.files[SAMPLES], self.files[ARRAYS])
        self.fields: list[str] = []
        self.known = np.empty(0, bool)  # the fields that have had a length in every sample
        self.count = 0
        self.files[ENDS].write(bytes(8))

    def __exit__(self, *error: object) -> None:
        for file in self.files.values():
            with contextlib.suppress(OSError):  # the disk may be full: the first error has said so
                file.close()

    def add(self, sample: Any) -> None:
        if not self.count and isinstance(sample, dict):
            self.fields = [name for name in sample if isinstance(name, str)]
            self.known = np.ones(len(self.fields), bool)
        try:
            self.pickler.dump(sample)
        except Unkept as error:
            raise Unkept(f"{error} cannot be written (sample {self.count}{self._field(sample)})") from None
        except (RecursionError, ValueError) as error:
            raise Unkept(f"sample {self.count} is nested too deeply, or in itself: {error}") from None
        self.files[ENDS].write(self.files[SAMPLES].tell().to_bytes(8, "little"))
        if self.fields:
            lengths = _lengths(sample, self.fields)
            self.known &= lengths >= 0
            self.files[LENGTHS].write(lengths.tobytes())
        self.count += 1

    def _field(self, sample: Any) -> str:
        """The field that cannot be written; this writer is of no use any more."""
        for name, value in sample.items() if isinstance(sample, dict) else ():
            try:
                self.pickler.dump(value)
            except Unkept:
                return f", field {name!r}"
        return ""

    def finish(self) -> dict[str, Any]:
        """Brings everything to the disk; what a manifest says of it."""
        files = {}
        for name, file in self.files.items():
            file.flush()
            os.fsync(file.fileno())
            files[name] = [_hash_of(self.folder / name), file.tell()]
        return {"samples": self.count, "files": files, "fields": self.fields, "known": self.known.tolist()}


def is_as_written(path: Path, known: Sequence[Any]) -> bool:
    """Whether a file holds what was written, by its hash."""
    return _hash_of(path) == str(known[0])


def _hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, functools.partial(hashlib.blake2b, digest_size=16)).hexdigest()


# -- values: pickles of built-in types; nothing but `_array_at` can be called by reading one


class _Pickler(pickle.Pickler):
    def __init__(self, file: IO[bytes], arrays: IO[bytes]) -> None:
        super().__init__(file, protocol=5)
        self.arrays = arrays
        self.fast = True  # no references: equal samples become equal bytes, whichever of their parts are shared

    def reducer_override(self, value: Any) -> Any:
        """Called for whatever is not of a built-in type: arrays are referred to, all else is refused."""
        if value is _array_at:
            return NotImplemented
        flavor, array = _as_array(value)
        self.arrays.write(bytes(-self.arrays.tell() % ALIGNMENT))
        begin = self.arrays.tell()
        self.arrays.write(array.tobytes())
        return _array_at, (flavor, array.dtype.str, array.shape, begin)


def _as_array(value: Any) -> tuple[str, np.ndarray]:
    torch = sys.modules.get("torch")  # where nobody has imported it, the value is no tensor
    if torch is not None and type(value) is torch.Tensor:
        if value.layout is not torch.strided or value.device.type != "cpu" or value.requires_grad:
            raise Unkept("a tensor that is sparse, on a device or part of a graph")
        try:
            flavor, array = "tensor", value.resolve_conj().resolve_neg().numpy()
        except TypeError:
            raise Unkept(f"a tensor of {value.dtype}") from None
    elif type(value) in (np.ndarray, np.memmap):
        flavor, array = "array", np.asarray(value)
    elif isinstance(value, np.generic) and not isinstance(value, np.void | np.object_):
        flavor, array = "scalar", np.asarray(value)
    else:
        raise Unkept(f"a {type(value).__module__}.{type(value).__qualname__}")
    if array.dtype.kind not in SIMPLE or not array.dtype.itemsize:
        raise Unkept(f"an array of {array.dtype}")
    return flavor, array


def _array_at(arrays: np.ndarray, views: bool, flavor: str, dtype: str, shape: tuple[int, ...], begin: int) -> Any:
    """The array, tensor or number of numpy whose bytes begin there."""
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
            raise pickle.UnpicklingError(f"a kept sample calls {module}.{name}")
        return self.make


def _lengths(sample: Any, fields: Sequence[str]) -> np.ndarray:
    """The first axes of fields of numbers, as they would be padded; -1 for what has none."""
    from alchemy.data.padding import as_array

    def length(value: Any) -> int:
        with contextlib.suppress(AlchemyError):  # whoever pads it says what is wrong with it
            array = as_array(value)
            return len(array) if array is not None and array.ndim else -1
        return -1

    values = sample if isinstance(sample, dict) else {}
    return np.array([length(values.get(name)) for name in fields], "<i4")


# -- reading


class Stored(Sequence[Any]):
    """Samples that stay on the disk until one is asked for. Workers, forked or spawned, map the files themselves.

    `views` gives arrays as read-only views of the file instead of copies. Raises Gone where the files are no longer
    there, or are others, when they are mapped: at once, and in spawned workers when the first sample is asked for.
    """

    def __init__(self, folder: Path, layout: dict[str, Any], *, views: bool = False) -> None:
        self.folder, self.layout, self.views = folder, layout, views
        _ = self._files

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "layout": self.layout, "views": self.views}  # what is mapped does not travel

    @functools.cached_property
    def _files(self) -> tuple[np.ndarray, np.ndarray, Callable[..., Any]]:
        try:
            samples, arrays = (self._mapped(name, "|u1") for name in (SAMPLES, ARRAYS))
            ends = self._mapped(ENDS, "<i8")
            # after they are mapped: somebody may have put others there at any moment before
            same = json.loads((self.folder / MANIFEST).read_bytes())["layout"] == self.layout
        except (OSError, ValueError):
            same = False
        if not same:
            hint = "start again; what a run with spawned workers reads should stay while it runs"
            raise Gone(f"cache {self.folder.name[:12]} was removed, or made again, while it was in use", hint=hint)
        return samples, ends, functools.partial(_array_at, arrays, self.views)

    def _mapped(self, name: str, dtype: str) -> np.ndarray:
        return mapped(self.folder / name, dtype, self.layout["files"][name][1] // np.dtype(dtype).itemsize)

    @property
    def digest(self) -> str:
        """A hash of the samples: equal ones have the same, no matter who made them and when."""
        return hash_text(json.dumps([self.layout["files"][name] for name in (SAMPLES, ARRAYS)]))

    def lengths(self) -> dict[str, np.ndarray]:
        """The first axis of each field of numbers that every sample has; no sample is read."""
        fields, known = self.layout["fields"], self.layout["known"]
        columns = self._mapped(LENGTHS, "<i4").reshape(-1, max(len(fields), 1)).T
        return {name: column for name, column, there in zip(fields, columns, known) if there}

    def __len__(self) -> int:
        count: int = self.layout["samples"]
        return count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        samples, ends, make = self._files
        begin, end = ends[row : row + 2].tolist()
        return _Unpickler(samples[begin:end].tobytes(), make).load()
