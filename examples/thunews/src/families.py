"""Padding and case settings of each family of pretrained models, and the available heads."""

import argparse
import json
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError

HEADS = ("cnn", "lstm", "gru", "rcnn")
KEPT_FREE = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}  # positions that these models do not use
CASED_BY_FLAG = ("albert", "xlnet")  # sentencepiece models; BERT with a vocab.txt behaves the same


def split_type(model_type: str) -> tuple[str, str]:
    """Split a model type into the kind of model and its head.

    >>> split_type("bert_cnn"), split_type("xlm-roberta"), split_type("big_bird")
    (('bert', 'cnn'), ('xlm-roberta', ''), ('big_bird', ''))
    """
    kind, _, head = model_type.lower().rpartition("_")
    return (kind, head) if kind and head in HEADS else (model_type.lower(), "")


def head_table(head: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the table [model.head]."""
    match head:
        case "cnn":
            settings = {"filter_sizes": args.filter_sizes, "filter_num": args.filter_num}
        case "lstm" | "gru":
            names = (f"{head}_hidden_size", f"{head}_layers", f"{head}_dropout")
            settings = {name: getattr(args, name) for name in names}
        case "rcnn":
            settings = {"hidden": args.lstm_hidden_size, "layers": args.lstm_layers, "dropout": args.lstm_dropout}
        case _:
            return {"type": "alchemy.models.heads.Pool"}
    return {"type": f"alchemy.models.heads.{head.upper()}", **settings}


def padding(kind: str) -> dict[str, Any]:
    """Return the padding settings: XLNet is padded on the left, with a separate segment id."""
    return {"left": True, "segment": 4} if kind == "xlnet" else {}


def tokenizer_table(kind: str, folder: Path, lower: bool) -> dict[str, Any]:
    """Return the tokenizer table of a folder; `lower` (--do_lower_case) applies unless the files specify it."""
    said = _read_lower(folder)
    whole, wordpiece = ((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    table: dict[str, Any] = {"type": "alchemy.text.Folder", "path": str(folder)}
    if not whole and not wordpiece and kind in CASED_BY_FLAG:
        table["model_type"] = kind
    if lower and not said:
        table["lower"] = True
    elif said is None and not whole and (wordpiece or kind in CASED_BY_FLAG):
        table["lower"] = False
    return table


def _read_lower(folder: Path) -> bool | None:
    """Return whether the files of a tokenizer enable lower-casing, or None if they do not specify it."""
    normalizer = read_json(folder / "tokenizer.json").get("normalizer")
    if normalizer is None:
        said: bool | None = read_json(folder / "tokenizer_config.json").get("do_lower_case")
        return said
    steps = normalizer.get("normalizers", [normalizer])
    return any(step["type"] == "Lowercase" or step.get("lowercase") for step in steps)


def read_json(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file, or an empty dict if it is missing."""
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError) as error:
        raise AlchemyError(f"invalid JSON: {error}", where=str(file)) from error
