"""`alchemy checkpoint`: what a run has saved, whether it is whole, and weights made from it or from elsewhere."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.checkpoint.links import is_linked
from alchemy.checkpoint.manifest import (
    LINKS,
    MANIFEST,
    STATE,
    WEIGHTS,
    Manifest,
    Where,
    checkpoints,
    read_manifest,
    read_parts,
    verify,
)
from alchemy.cli.options import Command, Parser, add_user_dir, print_json, record_name, table
from alchemy.errors import AlchemyError, printable
from alchemy.files import readable_size
from alchemy.metrics.scalars import show_epoch
from alchemy.records.folder import find, newest, now
from alchemy.records.symlinks import refuse_links

if TYPE_CHECKING:
    from torch import Tensor

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
    path = Path(name)
    if checkpoints(path):
        return refuse_links(path)
    # tests and predictions leave records too, but no state
    record = newest(having="state") if name == "latest" else path if (path / "state").is_dir() else find(name)
    if not checkpoints(refuse_links(record) / "state"):
        hint = "was it made with [checkpoint] enabled = false, or did it end before its first save?"
        raise AlchemyError(f"{record} has no checkpoints", hint=hint)
    return record / "state"


def _is_checkpoint(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except ValueError:
        return None


def _refuse_broken(folder: Path) -> None:
    reason = verify(folder)
    if reason:
        raise AlchemyError(f"{folder} is broken: {reason}")


# -- ls
def _ls(args: argparse.Namespace) -> int:
    rows = [_row(folder) for folder in checkpoints(_state(args.record))]
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
    """What is known of a checkpoint without reading its contents."""
    links = [name for name in LINKS if is_linked(folder, folder.with_name(name))]
    row = {"name": folder.name, "path": str(folder), "broken": verify(folder, contents=False), "links": links}
    manifest = _manifest(folder)
    if manifest is not None:
        keys = ("update", "epoch", "step", "time", "kind", "why", "metric", "value")
        row |= {key: vars(manifest)[key] for key in keys} | {"bytes": manifest.bytes}
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    links = " ".join(row["links"])
    if "update" not in row:
        return [row["name"], *[""] * 7, links]
    metric = f"{row['metric']} {row['value']:.5g}" if row["value"] is not None else ""
    counts = [str(row["update"]), show_epoch(row["epoch"]), row["kind"], " ".join(row["why"]), metric]
    return [row["name"], *counts, readable_size(row["bytes"]), _age(row["time"]), links]


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
    row, counters = _row(folder), _counters(folder)
    if "update" not in row:
        raise AlchemyError(f"{folder} cannot be read: {row['broken']}")
    tensors = _tensors(folder)
    if args.json:
        print_json({**row, "counters": counters, "tensors": tensors})
        return 0
    score = f", {row['metric']} {row['value']:.5g}" if row["value"] is not None else ""
    print(
        f"{folder}: update {row['update']}, epoch {show_epoch(row['epoch'])}, {row['kind']}, "
        f"{readable_size(row['bytes'])}{score}"
    )
    broken = f"; broken: {row['broken']}" if row["broken"] else ""
    print(f"saved {row['time']} because of {', '.join(row['why'])}{broken}")
    for part, values in counters.items():
        print(printable(f"{part}: " + ", ".join(f"{key} {value}" for key, value in values.items())))
    cells = [[row["file"], row["name"], row["dtype"], str(row["shape"]), f"{row['norm']:.6g}"] for row in tensors]
    print(table([("file", "tensor", "dtype", "shape", "norm"), *cells]))
    return 0


def _chosen(name: str) -> Path:
    """The checkpoint that is named, or the newest of a record that is not broken as far as sizes tell."""
    if _is_checkpoint(Path(name)):
        return Path(name)
    state = _state(name)
    for folder in reversed(checkpoints(state)):
        if not verify(folder, contents=False):
            return folder
    raise AlchemyError(f"none of the checkpoints in {state} is whole", hint="see 'alchemy checkpoint ls'")


def _tensors(folder: Path) -> list[dict[str, Any]]:
    import torch

    from alchemy.checkpoint.files import TENSORS, TensorFile

    rows = []
    for file in (TensorFile(folder / name) for name in read_manifest(folder).files if name.endswith(TENSORS)):
        for name in file.names:
            tensor = file[name]
            wide = torch.complex128 if tensor.is_complex() else torch.float64
            row = {"file": file.path.stem, "name": name, "dtype": str(tensor.dtype).removeprefix("torch.")}
            norm = float(torch.linalg.vector_norm(tensor.to(wide)))
            rows.append({**row, "shape": list(tensor.shape), "norm": norm})
    return rows


def _counters(folder: Path) -> dict[str, dict[str, Any]]:
    """The plain values of each part."""
    try:
        parts = read_parts(folder) if (folder / STATE).exists() else {}
    except (OSError, ValueError) as error:
        raise AlchemyError(f"{folder / STATE} cannot be read: {error}") from error
    plain = {
        name: {key: value for key, value in state.items() if isinstance(value, int | float | str)}
        for name, state in parts.items()
        if isinstance(state, dict) and "$tensor" not in state
    }
    return {name: values for name, values in plain.items() if values}


# -- verify
def _verify(args: argparse.Namespace) -> int:
    folders = [Path(args.source)]
    if not _is_checkpoint(folders[0]):
        state = _state(args.source)
        folders = [*checkpoints(state), *(state / name for name in LINKS if (state / name).is_dir())]
    broken = 0
    for folder in folders:
        name, reason = f"{folder.parent.name}/{folder.name}", verify(folder)
        broken += bool(reason)
        text = f"broken: {reason}" if reason else f"whole: {readable_size(read_manifest(folder).bytes)}"
        print(f"{name} is {text}", flush=True)  # as it goes: a large one takes a while
    return 1 if broken else 0


# -- average
def _average(args: argparse.Namespace) -> int:
    folders, target = _to_average(args), _new_folder(args.to)
    from alchemy.checkpoint.average_checkpoints import average_weights

    newest = _manifest(folders[-1])
    where = Where(newest.update, newest.epoch, newest.step) if newest else Where(0, 0, 0)
    _write_weights(target, average_weights(folders), where, "average")
    names = ", ".join(folder.name for folder in folders)
    print(f"{target} holds the mean of {names}: load it with [model] model_path = {str(target)!r}")
    return 0


def _to_average(args: argparse.Namespace) -> list[Path]:
    """The folders, the newest last."""
    wanted = args.last or args.best
    if wanted and (len(args.sources) > 1 or wanted < 1):
        raise AlchemyError("--last N and --best N take one record, and a number above 0")
    folders = _of_record(_state(args.sources[0]), args.last, args.best) if wanted else list(map(Path, args.sources))
    for folder in folders:
        if not folder.is_dir():
            raise AlchemyError(f"there is no folder {str(folder)!r}")
        if _is_checkpoint(folder):
            _refuse_broken(folder)
    if not wanted and len(folders) < 2:
        raise AlchemyError("a mean needs two folders or more", hint="or a record with --last N or --best N")
    return folders


def _of_record(state: Path, last: int, best: int) -> list[Path]:
    # one for each update: a window's best weights may stand beside the whole state of the same update
    found = {manifest.update: (folder, manifest) for folder in checkpoints(state) if (manifest := _manifest(folder))}
    chosen = list(found.values())
    if best:
        scored = [(m.value if m.mode == "min" else -m.value, f, m) for f, m in chosen if m.value is not None]
        chosen = [(folder, manifest) for _, folder, manifest in sorted(scored, key=lambda row: row[0])[:best]]
    chosen = sorted(chosen, key=lambda row: row[1].update)[-(last or best) :]
    if len(chosen) < (last or best):
        kept = f"[checkpoint] {'last' if last else 'best'} = {last or best}"
        what = "checkpoints" if last else "checkpoints with a metric"
        raise AlchemyError(f"{state.parent} has {len(chosen)} {what}", hint=f"{kept} keeps more")
    return [folder for folder, _ in chosen]


# -- import
def _import(args: argparse.Namespace) -> int:
    import sys

    from alchemy.launch.project_imports import reach

    target = _new_folder(args.to)
    reach(args.user_dir)
    from alchemy.checkpoint.torch_load import load_torch_file, to_files

    if args.allow_pickle:
        print(f"warning: whatever code {args.file} holds is run now", file=sys.stderr)
    found = load_torch_file(Path(args.file), allow_pickle=args.allow_pickle, key=args.key)
    _write_weights(target, to_files(found.weights), Where(0, 0, 0), "import")
    where = f" from {found.key!r}" if found.key else ""
    print(f"{target} holds {len(found.weights)} tensors{where}: load it with [model] model_path = {str(target)!r}")
    if found.plain:
        print("beside them: " + ", ".join(f"{name} = {value!r}" for name, value in found.plain.items()))
    return 0


def _new_folder(name: str) -> Path:
    target = Path(name)
    if target.exists():
        raise AlchemyError(f"{name} is there already", hint="choose another --to, or remove it")
    return target


def _write_weights(target: Path, files: Mapping[str, Mapping[str, Tensor]], where: Where, why: str) -> None:
    from alchemy.checkpoint.files import write

    try:
        write(target, files, Manifest(*where, time=now(), kind=WEIGHTS, why=[why]))
    except OSError as error:
        raise AlchemyError(f"{target} cannot be written: {error.strerror or error}") from error


COMMAND = Command(_arguments, _main, EXAMPLES)
