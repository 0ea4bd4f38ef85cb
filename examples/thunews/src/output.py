"""What --output_dir holds, and whether a training may begin in it, goes on there, or is over already."""

import argparse
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from alchemy import prepare_cfg
from alchemy.checkpoint import newest_valid
from alchemy.config import dumps
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.plugins.files import config_hash
from alchemy.records.folder import folders, read_info
from alchemy.resuming import unfinished
from src.checkpoints import checkpoints
from src.scoring import PREDICTED, SCORES

CONFIG, RECORDS = "config.toml", "records"


class Plan(NamedTuple):
    """Whether there is something to train, and the record that it goes on with, if there is one."""

    train: bool
    record: Path | None = None


def plan(args: argparse.Namespace, document: Document) -> Plan:
    """Looks at the output folder, and makes it ready; one that holds something else is refused."""
    output = Path(args.output_dir).expanduser()
    if not args.do_train:
        return Plan(False)
    refuse_if_running(output)
    if args.overwrite_output_dir or not holds_something(output):
        clear(output)
    elif (record := unfinished(document)) is not None and newest_valid(record / "state")[0] is not None:
        return Plan(True, record)
    elif is_trained(output, document) and not all((output / name).is_file() for name in results(args)):
        return Plan(False)
    else:
        hint = "begin anew with --overwrite_output_dir, or leave out --do_train to use the checkpoints that are there"
        raise AlchemyError(f"{output} is not empty, and holds no unfinished training of these flags", hint=hint)
    output.mkdir(parents=True, exist_ok=True)
    write_atomic(output / CONFIG, dumps(document))
    return Plan(True)


def refuse_if_running(output: Path) -> None:
    for folder in folders(output / RECORDS):
        info = read_info(folder)
        if info["status"] == "running":
            hint = "wait for it, or end it with `alchemy stop`"
            raise AlchemyError(f"{folder} is still running, as process {info['pid']}", hint=hint)


def holds_something(output: Path) -> bool:
    """Whether anything would be lost: a run that failed before its first state leaves nothing that is worth keeping."""
    names = {path.name for path in output.iterdir()} if output.is_dir() else set()
    return bool(names - {CONFIG, RECORDS}) or any((output / RECORDS).glob("*/state/u*"))


def results(args: argparse.Namespace) -> list[str]:
    """The files that are made after a training."""
    return [name for name, wanted in ((SCORES, args.do_eval), (PREDICTED, args.do_predict)) if wanted]


def is_trained(output: Path, document: Document) -> bool:
    """Whether a training of the same config has come to its end, of which results may still be missing."""
    wanted = config_hash(document)
    infos = [read_info(folder) for folder in folders(output / RECORDS)]
    return any(info["cfg_hash"] == wanted and info["status"] == "finished" for info in infos)


def clear(output: Path) -> None:
    """Removes what the command has written, and nothing else that somebody keeps there."""
    for folder in (*checkpoints(output), output / RECORDS):
        shutil.rmtree(folder, ignore_errors=True)
    for name in (CONFIG, SCORES, PREDICTED):
        (output / name).unlink(missing_ok=True)


def trained_labels(output: Path) -> list[str] | None:
    """The labels that the checkpoints in a folder were trained with."""
    file = output.expanduser() / CONFIG
    table: Any = prepare_cfg(file)["task"] if file.is_file() else {}
    return list(table["labels"]) if "labels" in table else None
