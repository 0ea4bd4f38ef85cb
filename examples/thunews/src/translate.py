"""Convert the flags to an alchemy config."""

import argparse
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.text import Tokenizer
from src.families import KEPT_FREE, head_table, padding, read_json, split_type, tokenizer_table
from src.processors import PROCESSORS

NEVER = 10**9  # effectively disables logging
IDENTITY = ("model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path")


def training(args: argparse.Namespace, labels: list[str]) -> dict[str, Any]:
    """Return the config of the whole experiment."""
    kind, head = split_type(args.model_type)
    model = folder_of(args.model_name_or_path, args)
    options = other_config(args, model)
    check_model(args, kind, model, options)
    output = Path(args.output_dir).expanduser().resolve()
    return {
        "tag": f"{args.task_name} {args.model_type}",
        "runner": "alchemy.runner.Trainer",
        "seed": args.seed,
        "log_every": args.logging_steps if args.logging_steps > 0 else NEVER,
        "plugins": plugins(output),
        "task": task(args, kind, labels),
        "model": {
            "type": "alchemy.models.TextClassifier",
            "encoder": {
                "type": "alchemy.models.pretrained.Pretrained",
                "path": str(model),
                "kind": kind,
                **({"options": options} if options else {}),
            },
            "head": head_table(head, args),
        },
        "backward": {"period": args.gradient_accumulation_steps},
        "optim": {
            "type": "alchemy.optim.HFAdamW",
            "lr": args.learning_rate,
            "eps": args.adam_epsilon,
            "weight_decay": args.weight_decay,
            "no_decay": True,
            "max_grad_norm": args.max_grad_norm,
        },
        "sched": schedule(args, output),
        # for resuming; checkpoint-N is for other programs
        "checkpoint": {"every": {"updates": args.save_steps} if args.save_steps > 0 else {"epochs": 1, "minutes": 30}},
        **({"precision": {"dtype": "fp16"}} if args.fp16 and args.fp16_opt_level != "O0" else {}),
    }


def scoring(cfg: dict[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return the config that evaluates and predicts with the model and tokenizer of a checkpoint."""
    splits = {name: table for name, table in cfg["task"]["datasets"].items() if name != "train"}
    tokenizer = {**cfg["task"]["tokenizer"], "path": str(checkpoint)}
    tokenizer.pop("lower", None)  # the files of the checkpoint contain the settings of the training run
    encoder = {**cfg["model"]["encoder"], "path": str(checkpoint)}
    encoder.pop("options", None)  # included in the config.json of the checkpoint
    kept = {name: cfg[name] for name in ("seed", "plugins", "precision") if name in cfg}
    return {
        "tag": f"{cfg['tag']}, scored",
        **kept,
        "runner": "src.scoring.Score",
        "task": {**cfg["task"], "tokenizer": tokenizer, "datasets": splits},
        "model": {**cfg["model"], "encoder": encoder},
    }


def plugins(output: Path) -> list[dict[str, Any]]:
    return [
        {"type": "alchemy.plugins.BasicSetup"},
        {"type": "alchemy.plugins.FileLogger", "log_dir": str(output / "records")},
        {"type": "alchemy.plugins.TensorboardLogger"},
    ]


def task(args: argparse.Namespace, kind: str, labels: list[str]) -> dict[str, Any]:
    processor = PROCESSORS[args.task_name]
    folder = folder_of(args.tokenizer_name or args.model_name_or_path, args)
    regression = processor.output_mode == "regression"
    return {
        "type": "alchemy.tasks.Classification",
        "kind": "regression" if regression else "single",
        **({} if regression else {"labels": labels}),
        "tokenizer": tokenizer_table(kind, folder, args.do_lower_case),
        "pair": processor.pairs,
        "max_length": args.max_seq_length,
        "long": "longest_first",
        "cache": True,
        "overwrite_cache": args.overwrite_cache,
        **padding(kind),
        "datasets": {name: dataset(args, name, labels) for name in splits(args)},
    }


def splits(args: argparse.Namespace) -> list[str]:
    """Return the splits that the flags require."""
    wanted = {
        "train": args.do_train,
        "dev": args.do_eval or (args.do_train and args.evaluate_during_training),
        "test": args.do_predict,
    }
    return [name for name, yes in wanted.items() if yes]


def dataset(args: argparse.Namespace, split: str, labels: list[str]) -> dict[str, Any]:
    source = {
        "type": "src.data.Examples",
        "task": args.task_name,
        "split": split,
        "data_dir": str(Path(args.data_dir).expanduser().resolve()),
        "labels": labels,
    }
    size = args.per_gpu_train_batch_size if split == "train" else args.per_gpu_eval_batch_size
    return {"pipes": [source], "batch_size": size, "per_device": True}


def schedule(args: argparse.Namespace, output: Path) -> dict[str, Any]:
    length = {"num_training_steps": args.max_steps} if args.max_steps > 0 else {"epochs": args.num_train_epochs}
    steps = {
        "type": "src.checkpoints.Steps",
        "output_dir": str(output),
        "save_steps": max(args.save_steps, 0),
        "eval_steps": max(args.logging_steps, 0) if args.evaluate_during_training else 0,
    }
    return {
        "type": "alchemy.sched.LineWarmup",
        **length,
        "num_warmup_steps": args.warmup_steps,
        "pipes": [steps],
    }


def folder_of(name: str, args: argparse.Namespace) -> Path:
    """Return a local folder: the path itself, or below --cache_dir."""
    places = [Path(name).expanduser(), *([Path(args.cache_dir).expanduser() / name] if args.cache_dir else [])]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        hint = "pass a local folder: nothing is downloaded"
        raise AlchemyError(f"folder not found: {' or '.join(map(repr, map(str, places)))}", hint=hint)
    return found.resolve()


def other_config(args: argparse.Namespace, model: Path) -> dict[str, Any]:
    """Return the values of --config_name that differ from the config.json of the model."""
    if not args.config_name:
        return {}
    new, own = (read_json(folder / "config.json") for folder in (folder_of(args.config_name, args), model))
    odd = {key: value for key, value in new.items() if value is not None and value != own.get(key)}
    return {key: value for key, value in odd.items() if key not in IDENTITY}


def check_model(args: argparse.Namespace, kind: str, model: Path, options: dict[str, Any]) -> None:
    """Raise an error for settings that would fail only during training, or silently."""
    if args.num_train_epochs <= 0 and args.max_steps <= 0:
        raise AlchemyError(f"--num_train_epochs={args.num_train_epochs:g} trains nothing", hint="pass a value above 0")
    if 0 < args.max_steps < args.warmup_steps:
        hint = "the learning rate would never reach its peak"
        raise AlchemyError(f"--warmup_steps={args.warmup_steps} is more than --max_steps={args.max_steps}", hint=hint)
    config = read_json(model / "config.json") | options
    if config.get("model_type", kind) != kind:
        hint = f"pass --model_type={config['model_type']}, optionally with a head: {config['model_type']}_cnn"
        where = str(model / "config.json")
        raise AlchemyError(f"the model is a {config['model_type']!r}, not a {kind!r}", where=where, hint=hint)
    places = config.get("max_position_embeddings") or 0
    most = places - KEPT_FREE.get(kind, 0)
    if places > 0 and args.max_seq_length > most:
        hint = f"pass --max_seq_length={most} or less"
        raise AlchemyError(f"--max_seq_length={args.max_seq_length} exceeds the {most} tokens of the model", hint=hint)


def check_room(args: argparse.Namespace, tokenizer: Tokenizer) -> None:
    """Raise an error if special tokens leave no room for text."""
    words = tokenizer.template(PROCESSORS[args.task_name].pairs).split()
    around = sum(not word.startswith("$") for word in words)
    if args.max_seq_length <= around:
        text = f"--max_seq_length={args.max_seq_length} leaves no room for text next to {around} special tokens"
        raise AlchemyError(text, hint=f"pass {around + 1} or more")
