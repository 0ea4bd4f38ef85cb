"""`alchemy checkpoint`: what a run has saved, whether it is whole, and weights made from it or from elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import datetime
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, Parser, add_user_dir, print_json, record_name, table
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.checkpoint.manifest import Manifest

EXAMPLES = """examples:
  alchemy checkpoint ls latest
  alchemy checkpoint show records/demo/2026-01-31_12-00-00.000000/state/best
  alchemy checkpoint verify latest
  alchemy checkpoint average latest --last 5 --to averaged
  alchemy checkpoint import old.pth.tar --to imported"""

RECORD = "a record folder, its name, or 'latest'"
EITHER = "a checkpoint folder, or a record: its folder, its name, or 'latest'"


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, epilog=f"example:\n  alchemy checkpoint {name} {example}")

    ls = add("ls", "list the checkpoints of a record; sizes are looked at, contents are not", "latest --json")
    ls.add_argument("record", type=record_name, metavar="RECORD", help=RECORD)
    ls.add_argument("--json", action="store_true", help="print JSON")
    show = add("show", "print the tensors of a checkpoint, and the counters beside them", "latest")
    show.add_argument("source", metavar="CHECKPOINT", help=f"{EITHER} (its newest)")
    show.add_argument("--json", action="store_true", help="print JSON")
    verify = add("verify", "read everything and compare it with its hashes; exit code 1 if any is broken", "latest")
    verify.add_argument("source", metavar="CHECKPOINT", help=f"{EITHER} (all of its)")
    average = add("average", "write the mean of several sets of weights", "latest --last 5 --to averaged")
    average.add_argument(
        "sources", nargs="+", metavar="CHECKPOINT", help=f"folders with weights, or one record: {RECORD}"
    )
    which = average.add_mutually_exclusive_group()
    which.add_argument("--last", type=int, default=0, metavar="N", help="of a record, the newest N")
    which.add_argument("--best", type=int, default=0, metavar="N", help="of a record, the N with the best metric")
    take = add("import", "turn a file that torch.save wrote into a folder of weights", "old.pth.tar --to imported")
    take.add_argument("file", metavar="FILE", help="a state dict, a .pth.tar dict, or a whole network")
    take.add_argument("--allow-pickle", action="store_true", help="read Python objects too, which can run any code")
    take.add_argument("--key", default="", metavar="NAME", help="where in the file the weights are")
    add_user_dir(take, "the package that a whole network was made from")
    for writing in (average, take):
        writing.add_argument("--to", required=True, metavar="DIR", help="the new folder, which model_path can name")


def _main(args: argparse.Namespace) -> int:
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "ls": _ls,
        "show": _show,
        "verify": _verify,
        "average": _average,
        "import": _import,
    }
    return actions[args.action](args)


# -- finding them
def _state(name: str) -> Path:
    """The folder of checkpoints that a record has."""
    from alchemy.checkpoint.manifest import checkpoints
    from alchemy.records import find

    path = Path(name)
    if checkpoints(path):
        return path
    record = _latest() if name == "latest" else path if (path / "state").is_dir() else find(name)
    if not checkpoints(record / "state"):
        hint = "was it made with [checkpoint] enabled = false, or did it end before its first save?"
        raise AlchemyError(f"{record} has no checkpoints", hint=hint)
    return record / "state"


def _latest() -> Path:
    """The newest record that has checkpoints: tests and predictions leave records too, but no state."""
    from alchemy.checkpoint.manifest import checkpoints
    from alchemy.records.folder import folders

    found = [folder for folder in folders(Path(".")) if checkpoints(folder / "state")]
    if not found:
        raise AlchemyError("there is no record with checkpoints below .")
    return max(found, key=lambda folder: folder.name)


def _is_checkpoint(name: str) -> bool:
    from alchemy.checkpoint.manifest import MANIFEST

    return (Path(name) / MANIFEST).is_file()


def _read(folder: Path) -> tuple[Manifest | None, str]:
    """The manifest, and in one sentence what is wrong as far as sizes tell."""
    from alchemy.checkpoint.manifest import read_manifest, verify

    reason = verify(folder, contents=False)
    try:
        return read_manifest(folder), reason
    except ValueError:
        return None, reason


# -- ls
def _ls(args: argparse.Namespace) -> int:
    from alchemy.checkpoint.manifest import checkpoints

    state = _state(args.record)
    rows = [_row(folder) for folder in checkpoints(state)]
    if args.json:
        print_json(rows)
        return 0
    titles = ("checkpoint", "update", "epoch", "kind", "why", "metric", "size", "age", "links")
    print(table([titles, *map(_cells, rows)]))
    for row in rows:
        if row["broken"]:
            print(f"{row['name']} is broken: {row['broken']}")
    return 0


def _row(folder: Path) -> dict[str, Any]:
    manifest, broken = _read(folder)
    row: dict[str, Any] = {"name": folder.name, "path": str(folder), "broken": broken, "links": _links(folder)}
    if manifest is not None:
        keys = ("update", "epoch", "step", "time", "kind", "why", "metric", "value")
        row |= {key: getattr(manifest, key) for key in keys} | {"bytes": manifest.bytes}
    return row


def _links(folder: Path) -> list[str]:
    from alchemy.checkpoint.links import is_same
    from alchemy.checkpoint.manifest import LINKS

    return [name for name in LINKS if is_same(folder, folder.with_name(name))]


def _cells(row: dict[str, Any]) -> list[str]:
    links = " ".join(row["links"])
    if "update" not in row:
        return [row["name"], *[""] * 7, links]
    metric = f"{row['metric']} {row['value']:.5g}" if row["value"] is not None else ""
    counts = [str(row["update"]), str(row["epoch"]), row["kind"], " ".join(row["why"]), metric]
    return [row["name"], *counts, _size(row["bytes"]), _age(row["time"]), links]


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:.3g} GiB"


def _age(moment: str) -> str:
    try:
        seconds = (datetime.datetime.now().astimezone() - datetime.datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):
        return "?"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


# -- show
def _show(args: argparse.Namespace) -> int:
    folder = _chosen(args.source)
    manifest, broken = _read(folder)
    if manifest is None:
        raise AlchemyError(f"{folder} cannot be read: {broken}")
    tensors = _tensors(folder, list(manifest.files))
    counters = _counters(folder)
    if args.json:
        print_json({**_row(folder), "counters": counters, "tensors": tensors})
        return 0
    score = f", {manifest.metric} {manifest.value:.5g}" if manifest.value is not None else ""
    print(
        f"{folder}: update {manifest.update}, epoch {manifest.epoch}, {manifest.kind}, {_size(manifest.bytes)}{score}"
    )
    print(f"saved {manifest.time} because of {', '.join(manifest.why)}{f'; broken: {broken}' if broken else ''}")
    for part, values in counters.items():
        print(f"{part}: " + ", ".join(f"{key} {value}" for key, value in values.items()))
    rows = [[row["file"], row["name"], row["dtype"], str(row["shape"]), f"{row['norm']:.6g}"] for row in tensors]
    print(table([("file", "tensor", "dtype", "shape", "norm"), *rows]))
    return 0


def _chosen(name: str) -> Path:
    """The checkpoint that is named, or the newest of a record that is not broken as far as sizes tell."""
    from alchemy.checkpoint.manifest import checkpoints

    if _is_checkpoint(name):
        return Path(name)
    state = _state(name)
    for folder in reversed(checkpoints(state)):
        if not _read(folder)[1]:
            return folder
    raise AlchemyError(f"none of the checkpoints in {state} is whole", hint="see 'alchemy checkpoint ls'")


def _tensors(folder: Path, files: Sequence[str]) -> list[dict[str, Any]]:
    import torch

    from alchemy.checkpoint.files import TENSORS, TensorFile

    opened = [TensorFile(folder / name) for name in files if name.endswith(TENSORS)]
    pairs = [(file, name) for file in opened for name in file.names]
    rows = []
    with _bar("reading", len(pairs)) as tick:
        for file, name in pairs:
            tick(name)
            tensor = file[name]
            wide = torch.complex128 if tensor.is_complex() else torch.float64
            row = {"file": file.path.stem, "name": name, "dtype": str(tensor.dtype).removeprefix("torch.")}
            norm = float(torch.linalg.vector_norm(tensor.to(wide)))
            rows.append({**row, "shape": list(tensor.shape), "norm": norm})
    return rows


def _counters(folder: Path) -> dict[str, dict[str, Any]]:
    """The plain values of each part."""
    import json

    path = folder / "state.json"
    parts = json.loads(path.read_text("utf-8"))["parts"] if path.is_file() else {}
    plain = {
        name: {key: value for key, value in state.items() if isinstance(value, int | float | str)}
        for name, state in parts.items()
        if isinstance(state, dict) and "$tensor" not in state
    }
    return {name: values for name, values in plain.items() if values}


# -- verify
def _verify(args: argparse.Namespace) -> int:
    from alchemy.checkpoint.manifest import LINKS, checkpoints, read_manifest, verify

    folders = [Path(args.source)]
    if not _is_checkpoint(args.source):
        state = _state(args.source)
        folders = [*checkpoints(state), *(state / name for name in LINKS if (state / name).is_dir())]
    broken = 0
    manifests = [manifest for folder in folders if (manifest := _read(folder)[0]) is not None]
    with _bar("verifying", sum(len(manifest.files) for manifest in manifests)) as tick:
        reasons = [verify(folder, tick=tick) for folder in folders]
    for folder, reason in zip(folders, reasons, strict=True):
        name = f"{folder.parent.name}/{folder.name}"
        broken += bool(reason)
        print(f"{name} is broken: {reason}" if reason else f"{name} is whole: {_size(read_manifest(folder).bytes)}")
    return 1 if broken else 0


# -- average
def _average(args: argparse.Namespace) -> int:
    folders = _to_average(args)
    target = _new_folder(args.to)
    from alchemy.checkpoint.average import mean, weight_files
    from alchemy.checkpoint.files import TensorFile

    count = sum(len(TensorFile(folders[-1] / name).names) for name in weight_files(folders[-1]))
    with _bar("averaging", count) as tick:
        files = mean(folders, tick)
    newest = _read(folders[-1])[0]
    place = (newest.update, newest.epoch, newest.step) if newest else (0, 0, 0)
    _write_weights(target, files, place, "average")
    names = ", ".join(folder.name for folder in folders)
    print(f"{target} holds the mean of {names}: load it with [model] model_path = {str(target)!r}")
    return 0


def _to_average(args: argparse.Namespace) -> list[Path]:
    """The folders, the newest last."""
    wanted = args.last or args.best
    if not wanted:
        folders = [Path(name) for name in args.sources]
        missing = [str(folder) for folder in folders if not folder.is_dir()]
        if missing:
            raise AlchemyError(f"there is no folder {missing[0]!r}")
        if len(folders) < 2:
            raise AlchemyError("a mean needs two folders or more", hint="or a record with --last N or --best N")
        for folder in folders:
            if _is_checkpoint(str(folder)):
                _refuse_broken(folder)
        return folders
    if len(args.sources) > 1 or wanted < 1:
        raise AlchemyError("--last N and --best N take one record, and a number above 0")
    return _of_record(_state(args.sources[0]), args.last, args.best)


def _of_record(state: Path, last: int, best: int) -> list[Path]:
    from alchemy.checkpoint.manifest import checkpoints

    read = {folder: manifest for folder in checkpoints(state) if (manifest := _read(folder)[0]) is not None}
    # a window's best weights may stand beside the whole state of the same update
    updates = {manifest.update: folder for folder, manifest in read.items()}
    found = list(updates.values())
    if best:
        scored = [folder for folder in found if read[folder].value is not None]
        found = sorted(scored, key=lambda folder: _rank(read[folder]))[:best]
    chosen = sorted(found, key=lambda folder: read[folder].update)[-(last or best) :]
    if len(chosen) < (last or best):
        kept = f"[checkpoint] {'last' if last else 'best'} = {last or best}"
        what = "checkpoints" if last else "checkpoints with a metric"
        raise AlchemyError(f"{state.parent} has {len(chosen)} {what}", hint=f"{kept} keeps more")
    for folder in chosen:
        _refuse_broken(folder)
    return chosen


def _rank(manifest: Manifest) -> float:
    assert manifest.value is not None
    return manifest.value if manifest.mode == "min" else -manifest.value


def _refuse_broken(folder: Path) -> None:
    from alchemy.checkpoint.manifest import verify

    reason = verify(folder)
    if reason:
        raise AlchemyError(f"{folder} is broken: {reason}")


# -- import
def _import(args: argparse.Namespace) -> int:
    import sys

    from alchemy.launch.project import reach

    target = _new_folder(args.to)
    reach(args.user_dir)
    from alchemy.checkpoint.foreign import as_files, load_foreign

    if args.allow_pickle:
        print(f"warning: whatever code {args.file} holds is run now", file=sys.stderr)
    found = load_foreign(Path(args.file), allow_pickle=args.allow_pickle, key=args.key)
    _write_weights(target, as_files(found.weights), (0, 0, 0), "import")
    where = f" from {found.key!r}" if found.key else ""
    print(f"{target} holds {len(found.weights)} tensors{where}: load it with [model] model_path = {str(target)!r}")
    if found.beside:
        print("beside them: " + ", ".join(f"{name} = {value!r}" for name, value in found.beside.items()))
    return 0


def _new_folder(name: str) -> Path:
    target = Path(name)
    if target.exists():
        raise AlchemyError(f"{name} is there already", hint="choose another --to, or remove it")
    return target


def _write_weights(target: Path, files: dict[str, Any], place: tuple[int, int, int], why: str) -> None:
    from alchemy.checkpoint.files import write
    from alchemy.checkpoint.manifest import WEIGHTS, Manifest
    from alchemy.records.folder import now

    try:
        write(target, files, Manifest(*place, time=now(), kind=WEIGHTS, why=[why]))
    except OSError as error:
        raise AlchemyError(f"{target} cannot be written: {error.strerror or error}") from error


# -- printing
@contextlib.contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[str], None]]:
    from rich.console import Console

    from alchemy.progress import Bar

    with Bar(what, total, Console(stderr=True)) as bar:
        yield bar.step
        bar.finish()


COMMAND = Command(_arguments, _main, EXAMPLES)
