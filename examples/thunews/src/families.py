"""What each family of pretrained models wants: padding and case; and the heads that can stand on it."""

import argparse
import json
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError

HEADS = ("cnn", "lstm", "gru", "rcnn")
KEPT_FREE = {"roberta": 2, "xlm-roberta": 2, "camembert": 2}  # places of a text that these models do not use
CASED_BY_FLAG = ("albert", "xlnet")  # with a model of sentencepiece, as BERT with a vocab.txt


def split_type(model_type: str) -> tuple[str, str]:
    """The kind of model, and its head.

    >>> split_type("bert_cnn"), split_type("xlm-roberta"), split_type("big_bird")
    (('bert', 'cnn'), ('xlm-roberta', ''), ('big_bird', ''))
    """
    kind, _, head = model_type.lower().rpartition("_")
    return (kind, head) if kind and head in HEADS else (model_type.lower(), "")


def head_table(head: str, args: argparse.Namespace) -> dict[str, Any]:
    """The table [model.head]."""
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
    """XLNet reads a text up to its end: what is padded stands in front, in a segment of its own."""
    return {"left": True, "segment": 4} if kind == "xlnet" else {}


def tokenizer_table(kind: str, folder: Path, lower: bool) -> dict[str, Any]:
    """The tokenizer of a folder; `lower` is --do_lower_case, which counts where the files say nothing else."""
    said = _says_lower(folder)
    whole, wordpiece = ((folder / name).is_file() for name in ("tokenizer.json", "vocab.txt"))
    table: dict[str, Any] = {"type": "alchemy.text.Folder", "path": str(folder)}
    if not whole and not wordpiece and kind in CASED_BY_FLAG:
        table["model_type"] = kind
    if lower and not said:
        table["lower"] = True
    elif said is None and not whole and (wordpiece or kind in CASED_BY_FLAG):
        table["lower"] = False
    return table


def _says_lower(folder: Path) -> bool | None:
    """Whether the files of a tokenizer say that text is made lower-case; None where they say nothing of it."""
    normalizer = read_json(folder / "tokenizer.json").get("normalizer")
    if normalizer is None:
        said: bool | None = read_json(folder / "tokenizer_config.json").get("do_lower_case")
        return said
    steps = normalizer.get("normalizers", [normalizer])
    return any(step["type"] == "Lowercase" or step.get("lowercase") for step in steps)


def read_json(file: Path) -> dict[str, Any]:
    """What a file says; nothing where there is none."""
    if not file.is_file():
        return {}
    try:
        return dict(json.loads(file.read_bytes()))
    except (ValueError, TypeError) as error:
        raise AlchemyError(f"it is no JSON: {error}", where=str(file)) from error
