"""Inspect --output_dir and decide whether to start training, to resume it, or to reject the folder."""

import argparse
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

from alchemy import prepare_cfg
from alchemy.checkpoint import newest_valid
from alchemy.config import dumps
from alchemy.config.explain import differences
from alchemy.config.tree import Document
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.records.folder import folders
from alchemy.records.status import read_info, status_of
from src import former
from src.checkpoints import checkpoints
from src.scoring import PREDICTED, SCORES

CONFIG, RECORDS = "config.toml", "records"
PARTS = ".checkpoint-*"  # unfinished checkpoints of a killed run
ANEW = "start over with --overwrite_output_dir, or remove --do_train to use the existing checkpoints"
# config keys that do not affect the weights: training can resume with other values
WITHOUT_EFFECT = ("tag", "log_every", "task.overwrite_cache", "task.datasets.dev.*", "task.datasets.test.*")
FLAGS = {
    "backward.period": "gradient_accumulation_steps",
    "model.encoder.kind": "model_type",
    "model.encoder.options.*": "config_name",
    "model.encoder.path": "model_name_or_path",
    "model.head.dropout": "lstm_dropout",
    "model.head.hidden": "lstm_hidden_size",
    "model.head.layers": "lstm_layers",
    "model.head.type": "model_type",
    "optim.eps": "adam_epsilon",
    "optim.lr": "learning_rate",
    "precision.dtype": "fp16",
    "sched.epochs": "num_train_epochs",
    "sched.num_training_steps": "max_steps",
    "sched.num_warmup_steps": "warmup_steps",
    "sched.pipes.*.eval_steps": "evaluate_during_training with logging_steps",
    "task.datasets.train.batch_size": "per_gpu_train_batch_size",
    "task.*labels": "the list of labels",
    "task.max_length": "max_seq_length",
    "task.tokenizer.lower": "do_lower_case",
    "task.tokenizer.path": "tokenizer_name",
}


class Plan(NamedTuple):
    """Whether to train, and the record to resume, if any."""

    train: bool
    record: Path | None = None


def plan(args: argparse.Namespace, document: Document) -> Plan:
    """Prepare the output folder; raise an error if it contains anything else."""
    output = Path(args.output_dir).expanduser()
    if not args.do_train:
        return Plan(False)
    if (folder := running(output)) is not None:
        hint = "wait for it to finish, or stop it with `alchemy stop`"
        raise AlchemyError(f"{folder} is still running (process {read_info(folder)['pid']})", hint=hint)
    if holds_something(output):
        record = None if args.overwrite_output_dir else training_in(output, document)
        if record is not None and status_of(record) == "finished":
            refuse_if_complete(args, output)
            return Plan(False)
        if record is not None and newest_valid(record / "state")[0] is not None:
            return Plan(True, record)
        if record is not None:
            print(f"{record} was interrupted before its first checkpoint: training starts over")
        former.set_aside(written(output), output)
    for path in written(output):  # left by a run that failed at its start
        former.remove(path)
    output.mkdir(parents=True, exist_ok=True)
    write_atomic(output / CONFIG, dumps(document))
    return Plan(True)


def running(output: Path) -> Path | None:
    """Return the record in a folder that another process is writing, if any."""
    return next((folder for folder in folders(output / RECORDS) if status_of(folder) == "running"), None)


def holds_something(output: Path) -> bool:
    """Return whether overwriting would lose anything. Output of a run without a checkpoint is not worth keeping."""
    names = {path.name for path in output.iterdir() if not fnmatch(path.name, PARTS)} if output.is_dir() else set()
    return bool(names - {CONFIG, RECORDS}) or any((output / RECORDS).glob("*/state/u*"))


def written(output: Path) -> list[Path]:
    """Return the files that the command has written, without other files of the folder."""
    files = [output / name for name in (CONFIG, RECORDS, SCORES, PREDICTED)]
    return [*checkpoints(output), *output.glob(PARTS), *(path for path in files if path.exists())]


def training_in(output: Path, document: Document) -> Path:
    """Return the record of the training run in a folder; raise an error if its flags differ."""
    configs = {folder: folder / "cfg.toml" for folder in sorted(folders(output / RECORDS), reverse=True)}
    read = {folder: prepare_cfg(file) for folder, file in configs.items() if file.is_file()}
    found = next((row for row in read.items() if row[1].get("runner") == document.get("runner")), None)
    if found is None:
        raise AlchemyError(f"{output} is not empty and contains no record of a training run", hint=ANEW)
    record, before = found
    odd = other_flags(before, document)
    if odd:
        hint = f"use the same flags, {ANEW}"
        raise AlchemyError(f"{output} contains a training run with other flags: {'; '.join(odd)}", hint=hint)
    return record


def other_flags(before: Document, now: Document) -> list[str]:
    """Return the relevant differences between the flags: `learning_rate was 0.01, is 0.02`."""
    rows = differences(before, now)
    odd = [row for row in rows if not any(fnmatch(row[0], pattern) for pattern in WITHOUT_EFFECT)]
    return list(
        dict.fromkeys(f"{flag_of(key)} was {format_value(was)}, is {format_value(new)}" for key, was, new in odd)
    )


def flag_of(key: str) -> str:
    """Return the flag that sets a config key; most have the name of the key."""
    return next((flag for pattern, flag in FLAGS.items() if fnmatch(key, pattern)), key.rpartition(".")[2])


def format_value(value: Any) -> str:
    return "not given" if type(value) is object else str(value)


def refuse_if_complete(args: argparse.Namespace, output: Path) -> None:
    """Raise an error if neither training nor results are missing."""
    wanted = [name for name, yes in ((SCORES, args.do_eval), (PREDICTED, args.do_predict)) if yes]
    if all((output / name).is_file() for name in wanted):
        raise AlchemyError(f"{output} already contains the finished run of these flags, and its results", hint=ANEW)


def trained_labels(output: Path) -> list[str] | None:
    """Return the labels that the checkpoints in a folder were trained with."""
    file = output.expanduser() / CONFIG
    table: Any = prepare_cfg(file)["task"] if file.is_file() else {}
    return list(table["labels"]) if "labels" in table else None
