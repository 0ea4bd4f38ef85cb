"""The folder of an export: checked before it is there, and used as long as it is whole and of the same weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.export.check import LINES, Agreement, Pair, Watch, check
from alchemy.export.engine import Engine, Precision, widest
from alchemy.export.spec import array, held, layout_of, library, spec_of
from alchemy.files import hash_file, replace_folder, write_atomic
from alchemy.generate import BeamSearch, Limits, Special, Writer
from alchemy.nn.seq2seq import Network
from alchemy.nn.transformer import Transformer
from alchemy.text import Tokenizer

FORMAT = 1
MANIFEST = "alchemy.json"
# what stands in an export, whatever CTranslate2 ends the names of its files with
PARTS = {
    "alchemy",
    "config",
    "model",
    "shared_vocabulary",
    "source_vocabulary",
    "target_vocabulary",
    "source",
    "target",
}
BEAM = 5  # of the texts that are compared


class Trained(NamedTuple):
    """A network, the tokens that a search with it knows, and the tokenizers of both sides."""

    network: Network
    special: Special
    source: Tokenizer
    target: Tokenizer


class Export(NamedTuple):
    """A folder that CTranslate2 reads, how it agrees with the model, and whether it was there before."""

    folder: Path
    agreement: Agreement
    old: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in _files_of(self.folder))


def folder_of(record: Path, precision: Precision) -> Path:
    """Where a record keeps it.

    >>> folder_of(Path("records/x"), "int8").as_posix()
    'records/x/export/ctranslate2-int8'
    """
    return record / "export" / f"ctranslate2-{precision}"


def exported(
    folder: Path, trained: Trained, precision: Precision, pairs: Callable[[], Sequence[Pair]], watch: Watch = iter
) -> Export:
    """The export of a model: that of the folder, if it is of these weights, else a new one in its place.

    `pairs` gives the sentences that a new one is checked on.
    """
    network = held(trained.network)
    library()
    made_of = digest(network, trained.special)
    kept = read(folder)
    if kept.get("made_of") == made_of and kept["precision"] == precision:
        return Export(folder, Agreement(**kept["agreement"]), old=True)
    _refuse_if_theirs(folder)
    work = Work(trained, network, precision, made_of, [pair for pair in pairs() if fits(network, pair)][:LINES], watch)
    with _folder(folder.parent):
        replace_folder(folder, work.write)
    return Export(folder, Agreement(**read(folder)["agreement"]))


class Work(NamedTuple):
    """An export that is being made."""

    trained: Trained
    network: Transformer
    precision: Precision
    made_of: str
    pairs: Sequence[Pair]
    watch: Watch

    def write(self, folder: Path) -> None:
        folder.mkdir()
        spec = spec_of(self.network, self.trained.special)
        spec.validate()
        spec.optimize(quantization=self.precision)
        spec.save(str(folder))
        found = check(self._engine(folder), self.pairs, self.trained.target, self.precision, self.watch)
        self.trained.source.save(folder / "source")
        self.trained.target.save(folder / "target")
        manifest: dict[str, Any] = {"format": FORMAT, "precision": self.precision, "made_of": self.made_of}
        manifest |= {"ctranslate2": library().__version__, "agreement": found._asdict(), "files": hashes(folder)}
        write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def _engine(self, folder: Path) -> Engine:
        beam = min(BEAM, widest(self.network.out.out_features))
        writer = Writer(BeamSearch(beam=beam), self.trained.special, Limits())
        return Engine(folder, self.network, writer, self.precision)


def _refuse_if_theirs(folder: Path) -> None:
    """An export takes the place of an export, and of nothing else."""
    if folder.is_file() or (folder.is_dir() and _files_of(folder) and not (folder / MANIFEST).is_file()):
        raise AlchemyError(f"{folder} is there, and it is no export", hint="remove it, or give another folder")
    for path in _files_of(folder):
        if Path(path.relative_to(folder).parts[0]).stem not in PARTS:
            hint = "put it elsewhere, or give another folder"
            raise AlchemyError(f"{path} is no part of the export that is to be replaced", hint=hint)


def fits(network: Transformer, pair: Pair) -> bool:
    return 0 < len(pair.source) <= layout_of(network).places


def read(folder: Path) -> dict[str, Any]:
    """What an export says of itself, if it is whole; else nothing."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        found = hashes(folder)
        same = all(found.get(name) == value for name, value in manifest["files"].items())
        return manifest if same and manifest["format"] == FORMAT else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def hashes(folder: Path) -> dict[str, str]:
    """Of all files but the one that names them."""
    files = [path for path in _files_of(folder) if path != folder / MANIFEST]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def _files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def digest(network: Transformer, special: Special) -> str:
    """A hash of all that decides an export."""
    found = hashlib.sha256(repr((FORMAT, tuple(layout_of(network)), tuple(special))).encode())
    for name, tensor in network.state_dict().items():
        found.update(f"{name} {tuple(tensor.shape)}".encode())
        found.update(array(tensor).tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def _folder(parent: Path) -> Any:
    """Makes the folder that exports lie in, and takes it away again where none came of it."""
    was = parent.exists()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise AlchemyError(f"{parent} cannot be written: {error.strerror}") from error
    finally:
        if not was:
            with contextlib.suppress(OSError):  # there is something in it
                parent.rmdir()
