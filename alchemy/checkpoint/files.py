"""Read and atomically write the files of a checkpoint: tensors as safetensors, the rest as JSON."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from alchemy.checkpoint.manifest import LARGEST_STATE, MANIFEST, TEMPORARY, File, Manifest, read_manifest
from alchemy.checkpoint.state_tree import DTYPES
from alchemy.errors import AlchemyError
from alchemy.files import open_to_read, read_json, sync_folder

TENSORS = ".safetensors"
BUFFER = 2**20
CHUNK = 2**24  # written and hashed chunk by chunk, while each chunk is in the CPU cache


class Disk:
    """The disk operations of a save; tests replace them with failing operations."""

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True)

    def open(self, path: Path) -> BinaryIO:
        return open(path, "xb", buffering=BUFFER)

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        file.write(data)

    def sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def sync_folder(self, folder: Path) -> None:
        sync_folder(folder)

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)


DISK = Disk()


def write(target: Path, files: Mapping[str, Any], manifest: Manifest, disk: Disk = DISK) -> Path:
    """Write the folder `target` atomically and add its files to the manifest.

    The content of `NAME.safetensors` is a dict of tensors; the content of any other file is a JSON value. After an
    error, no files are left; a killed process leaves at most a temporary folder, which `clear_leftovers` removes.
    """
    temporary = target.with_name(f"{TEMPORARY}{os.getpid()}-{target.name}")
    try:
        disk.make_folder(temporary)
        with contextlib.ExitStack() as opened:
            to_sync = []
            for name, content in files.items():
                to_sync.append(opened.enter_context(disk.open(temporary / name)))
                chunks = _tensor_bytes(content) if name.endswith(TENSORS) else iter([json_bytes(content)])
                manifest.files[name] = _write_chunks(to_sync[-1], chunks, disk)
            to_sync.append(opened.enter_context(disk.open(temporary / MANIFEST)))
            _write_chunks(to_sync[-1], iter([manifest.text().encode()]), disk)
            for file in to_sync:  # synced after all are written, since the first sync then flushes most of them
                disk.sync(file)
        disk.sync_folder(temporary)
        disk.rename(temporary, target)
    except BaseException:
        disk.remove(temporary)
        raise
    disk.sync_folder(target.parent)
    return target


def _write_chunks(file: BinaryIO, chunks: Iterator[bytes | memoryview], disk: Disk) -> File:
    digest, size = hashlib.sha256(), 0
    for chunk in chunks:
        disk.write(file, chunk)
        digest.update(chunk)
        size += len(chunk)
    return File(size, digest.hexdigest())


def json_bytes(content: object) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def _tensor_bytes(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file in chunks, without a second copy of the tensors in memory."""
    # largest element size first, so that every tensor is aligned
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {}
    end = 0
    for name in names:
        tensor, begin = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json_bytes(header)
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        yield from _tensor_chunks(tensors[name])


def _tensor_chunks(tensor: Tensor) -> Iterator[memoryview]:
    flat = tensor.detach().to("cpu").resolve_conj().resolve_neg().contiguous().reshape(-1)
    raw: Any = flat.view(torch.uint8).numpy()
    data = memoryview(raw)
    for begin in range(0, len(data), CHUNK):
        yield data[begin : begin + CHUNK]


class TensorFile:
    """A safetensors file, read one tensor at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            open_to_read(path).close()
            self._file = safe_open(path, framework="pt")
        except FileNotFoundError:
            raise AlchemyError(f"{path.name} not found in {str(path.parent)!r}") from None
        except (OSError, SafetensorError) as error:
            raise AlchemyError(f"cannot read {str(path)!r}: {error}") from error
        self.names: list[str] = list(self._file.keys())

    def __getitem__(self, name: str) -> Tensor:
        """Return a copy of a tensor; the copy stays valid if the file is removed."""
        tensor: Tensor = self._file.get_tensor(name)
        return tensor.clone()


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file."""
    file = TensorFile(path)
    return {name: file[name] for name in file.names}


def read(folder: str | Path) -> dict[str, Any]:
    """Read every file of a checkpoint, by file name, as a dict of tensors or a JSON value. Hashes are not verified."""
    folder = Path(folder)
    try:
        names = read_manifest(folder).files
    except ValueError as error:
        raise AlchemyError(f"cannot read the checkpoint {folder}: {error}") from error
    return {name: _read_file(folder / name) for name in names}


def _read_file(path: Path) -> Any:
    if path.name.endswith(TENSORS):
        return read_tensors(path)
    try:
        return read_json(path, LARGEST_STATE)
    except (OSError, ValueError) as error:
        raise AlchemyError(f"cannot read {str(path)!r}: {error}") from error
