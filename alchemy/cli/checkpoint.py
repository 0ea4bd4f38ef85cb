"""`alchemy checkpoint`: list, verify, average and import checkpoints."""

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
from alchemy.cli.options import Command, Parser, add_json, add_user_dir, check_record_name, print_json
from alchemy.cli.record_names import RECORD, find_record
from alchemy.cli.table_format import print_table
from alchemy.errors import AlchemyError, printable
from alchemy.files import readable_size
from alchemy.metrics.scalars import show_epoch
from alchemy.records.folder import newest
from alchemy.records.status import now
from alchemy.records.symlinks import refuse_links

if TYPE_CHECKING:
    from torch import Tensor

EXAMPLES = """examples:
  alchemy checkpoint ls latest
  alchemy checkpoint show records/demo/2026-01-31_12-00-00.000000/state/best
  alchemy checkpoint verify latest
  alchemy checkpoint average latest --last 5 --to averaged
  alchemy checkpoint import old.pth.tar --to imported"""

EITHER = f"a checkpoint folder, or {RECORD}"


def _arguments(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def add(name: str, text: str, example: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, epilog=f"example:\n  alchemy checkpoint {name} {example}")

    ls = add("ls", "list the checkpoints of a record; checks sizes, not contents", "latest --json")
    ls.add_argument("record", type=check_record_name, metavar="RECORD", help=RECORD)
    add_json(ls)
    show = add("show", "print the tensors and counters of a checkpoint", "latest")
    show.add_argument("source", metavar="CHECKPOINT", help=f"{EITHER} (latest checkpoint)")
    add_json(show)
    verify = add("verify", "verify the hashes of all files; exit code 1 if a checkpoint is damaged", "latest")
    verify.add_argument("source", metavar="CHECKPOINT", help=f"{EITHER} (all checkpoints)")
    average = add("average", "write the mean of several checkpoints", "latest --last 5 --to averaged")
    average.add_argument(
        "sources", nargs="+", metavar="CHECKPOINT", help=f"folders with weights, or one record: {RECORD}"
    )
    which = average.add_mutually_exclusive_group()
    which.add_argument("--last", type=int, default=0, metavar="N", help="average the N latest checkpoints of a record")
    which.add_argument("--best", type=int, default=0, metavar="N", help="average the N best checkpoints of a record")
    take = add("import", "convert a torch.save file to a checkpoint folder", "old.pth.tar --to imported")
    take.add_argument("file", metavar="FILE", help="a state dict, a .pth.tar dict, or a pickled module")
    take.add_argument(
        "--allow-pickle", action="store_true", help="unpickle Python objects, which can run arbitrary code"
    )
    take.add_argument("--key", default="", metavar="NAME", help="key of the weights in the file")
    add_user_dir(take, "package that defines the pickled module")
    for writing in (average, take):
        writing.add_argument("--to", required=True, metavar="DIR", help="folder to create; use it as model_path")


def _main(args: argparse.Namespace) -> int:
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "ls": _ls,
        "show": _show,
        "verify": _verify,
        "average": _average,
        "import": _import,
    }
    return actions[args.action](args)


# -- lookup
def _state(name: str) -> Path:
    """Return the folder that contains the checkpoints of a record."""
    path = Path(name)
    if checkpoints(path):
        return refuse_links(path)
    # records of tests and predictions have no state
    record = newest(having="state") if name == "latest" else path if (path / "state").is_dir() else find_record(name)
    if not checkpoints(refuse_links(record) / "state"):
        hint = "checkpoints may be disabled ([checkpoint] enabled = false), or the run ended before its first save"
        raise AlchemyError(f"{record} has no checkpoints", hint=hint)
    return record / "state"


def _is_checkpoint(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _manifest(folder: Path) -> Manifest | None:
    try:
        return read_manifest(folder)
    except ValueError:
        return None


def _check_intact(folder: Path) -> None:
    reason = verify(folder)
    if reason:
        raise AlchemyError(f"{folder} is damaged: {reason}")


# -- ls
def _ls(args: argparse.Namespace) -> int:
    rows = [_row(folder) for folder in checkpoints(_state(args.record))]
    if args.json:
        print_json(rows)
        return 0
    titles = ("checkpoint", "update", "epoch", "kind", "why", "metric", "size", "age", "links")
    print_table(titles, [_cells(row) for row in rows])
    for row in rows:
        if row["broken"]:
            print(f"{row['name']} is damaged: {row['broken']}")
    return 0


def _row(folder: Path) -> dict[str, Any]:
    """Describe a checkpoint without reading its contents."""
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
    folder = _find_checkpoint(args.source)
    row, counters = _row(folder), _counters(folder)
    if "update" not in row:
        raise AlchemyError(f"cannot read {folder}: {row['broken']}")
    tensors = _tensors(folder)
    if args.json:
        print_json({**row, "counters": counters, "tensors": tensors})
        return 0
    score = f", {row['metric']} {row['value']:.5g}" if row["value"] is not None else ""
    print(
        f"{folder}: update {row['update']}, epoch {show_epoch(row['epoch'])}, {row['kind']}, "
        f"{readable_size(row['bytes'])}{score}"
    )
    broken = f"; damaged: {row['broken']}" if row["broken"] else ""
    print(f"saved {row['time']}, reason: {', '.join(row['why'])}{broken}")
    for part, values in counters.items():
        print(printable(f"{part}: " + ", ".join(f"{key} {value}" for key, value in values.items())))
    cells = [[row["file"], row["name"], row["dtype"], str(row["shape"]), f"{row['norm']:.6g}"] for row in tensors]
    print_table(("file", "tensor", "dtype", "shape", "norm"), cells)
    return 0


def _find_checkpoint(name: str) -> Path:
    """Return the named checkpoint, or a record's latest checkpoint whose files have the expected sizes."""
    if _is_checkpoint(Path(name)):
        return Path(name)
    state = _state(name)
    for folder in reversed(checkpoints(state)):
        if not verify(folder, contents=False):
            return folder
    raise AlchemyError(f"all checkpoints in {state} are damaged", hint="see 'alchemy checkpoint ls'")


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
    """Return the scalar state of each part."""
    try:
        parts = read_parts(folder) if (folder / STATE).exists() else {}
    except (OSError, ValueError) as error:
        raise AlchemyError(f"cannot read {folder / STATE}: {error}") from error
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
        text = f"damaged: {reason}" if reason else f"intact: {readable_size(read_manifest(folder).bytes)}"
        print(f"{name} is {text}", flush=True)  # flush each line: large checkpoints take a while
    return 1 if broken else 0


# -- average
def _average(args: argparse.Namespace) -> int:
    folders, target = _folders_to_average(args), _new_folder(args.to)
    from alchemy.checkpoint.average_checkpoints import average_weights

    newest = _manifest(folders[-1])
    where = Where(newest.update, newest.epoch, newest.step) if newest else Where(0, 0, 0)
    _write_weights(target, average_weights(folders), where, "average")
    names = ", ".join(folder.name for folder in folders)
    print(f"wrote the mean of {names} to {target}; load it with [model] model_path = {str(target)!r}")
    return 0


def _folders_to_average(args: argparse.Namespace) -> list[Path]:
    """Return the folders to average, the latest one last."""
    wanted = args.last or args.best
    if wanted and (len(args.sources) > 1 or wanted < 1):
        raise AlchemyError("--last N and --best N need exactly one record and N > 0")
    folders = (
        _select_from_record(_state(args.sources[0]), args.last, args.best) if wanted else list(map(Path, args.sources))
    )
    for folder in folders:
        if not folder.is_dir():
            raise AlchemyError(f"folder not found: {str(folder)!r}")
        if _is_checkpoint(folder):
            _check_intact(folder)
    if not wanted and len(folders) < 2:
        raise AlchemyError("averaging needs at least two folders", hint="or pass a record with --last N or --best N")
    return folders


def _select_from_record(state: Path, last: int, best: int) -> list[Path]:
    # one checkpoint per update: the best weights of a window may be saved along with the full state of that update
    found = {manifest.update: (folder, manifest) for folder in checkpoints(state) if (manifest := _manifest(folder))}
    chosen = list(found.values())
    if best:
        scored = [(m.value if m.mode == "min" else -m.value, f, m) for f, m in chosen if m.value is not None]
        chosen = [(folder, manifest) for _, folder, manifest in sorted(scored, key=lambda row: row[0])[:best]]
    chosen = sorted(chosen, key=lambda row: row[1].update)[-(last or best) :]
    if len(chosen) < (last or best):
        kept = f"[checkpoint] {'last' if last else 'best'} = {last or best}"
        what = "checkpoints" if last else "checkpoints with a metric"
        raise AlchemyError(f"{state.parent} has only {len(chosen)} {what}", hint=f"set {kept} to keep more")
    return [folder for folder, _ in chosen]


# -- import
def _import(args: argparse.Namespace) -> int:
    import sys

    from alchemy.launch.project_imports import add_to_path

    target = _new_folder(args.to)
    add_to_path(args.user_dir)
    from alchemy.checkpoint.torch_load import load_torch_file, to_files

    if args.allow_pickle:
        print(f"warning: unpickling {args.file} may run arbitrary code", file=sys.stderr)
    found = load_torch_file(Path(args.file), allow_pickle=args.allow_pickle, key=args.key)
    _write_weights(target, to_files(found.weights), Where(0, 0, 0), "import")
    where = f" from {found.key!r}" if found.key else ""
    print(f"wrote {len(found.weights)} tensors{where} to {target}; load it with [model] model_path = {str(target)!r}")
    if found.plain:
        print("other values in the file: " + ", ".join(f"{name} = {value!r}" for name, value in found.plain.items()))
    return 0


def _new_folder(name: str) -> Path:
    target = Path(name)
    if target.exists():
        raise AlchemyError(f"{name} already exists", hint="choose another --to, or remove it")
    return target


def _write_weights(target: Path, files: Mapping[str, Mapping[str, Tensor]], where: Where, why: str) -> None:
    from alchemy.checkpoint.files import write

    try:
        write(target, files, Manifest(*where, time=now(), kind=WEIGHTS, why=[why]))
    except OSError as error:
        raise AlchemyError(f"cannot write {target}: {error.strerror or error}") from error


COMMAND = Command(_arguments, _main, EXAMPLES)
