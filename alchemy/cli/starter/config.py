"""Render the config that `alchemy new` writes for the detected data."""

from __future__ import annotations

from typing import Any

from alchemy.config.references import ESCAPED, MARK
from alchemy.config.toml_writer import format_inline
from alchemy.data.sniff.finding import Finding
from alchemy.data.sniff.points import Points

TITLES = {
    "text": "Text classification",
    "ner": "Sequence labeling",
    "pairs": "Text pair classification",
    "translation": "Translation",
}
# anything not listed here uses the defaults
MODELS: dict[str, dict[str, Any]] = {
    "text": {"type": "TextClassifier"},
    "ner": {"type": "Tagger", "encoder": {"type": "Recurrent", "dim": 64, "hidden": 128, "dropout": 0.5}},
    "pairs": {
        "type": "TextClassifier",
        "encoder": {"type": "Recurrent", "dim": 100, "hidden": 100, "dropout": 0.3},
        "head": {"type": "Pool", "how": "max"},
    },
    "translation": {"type": "Translator"},
}
OPTIMIZERS = {  # Adagrad is fastest for the sparse vectors of the text classifier
    "text": {"type": "Adagrad", "lr": 0.05},
    "ner": {"type": "AdamW", "lr": 0.004},
    "pairs": {"type": "AdamW", "lr": 0.001},
    "translation": {"type": "AdamW", "lr": 0.001},
}
EPOCHS = {"text": 8, "ner": 10, "pairs": 10, "translation": 15}
FEW = 100  # with fewer rows, a tenth is too little to evaluate on
COMMENTS = {
    "num_warmup_steps": "fraction of all updates",
    "tokenizer": "learned from the training text",
    "max_length": "tokens; longer text is truncated",
    "bad": "skip and count invalid rows",
    "encoding": "encoding of the files",
    "violations": "tags that violate the scheme start a new span",
}


def render_config(kind: str, finding: Finding) -> str:
    """Render the config for one kind of project."""
    if isinstance(finding, Points):
        return _render_points(finding)
    sched = {"type": "LineWarmup", "epochs": EPOCHS[kind], "num_warmup_steps": 0.1}
    lines = [
        f"# {TITLES[kind]}. Run `alchemy check train.toml`, then `alchemy run train.toml`.",
        *_table("task", finding.task),
    ]
    lines += ["", "[task.data]", *_splits(finding), *(_line(key, value) for key, value in finding.shared.items())]
    for name, table in (("model", MODELS[kind]), ("optim", OPTIMIZERS[kind]), ("sched", sched)):
        lines += ["", *_table(name, table)]
    return "\n".join(lines) + "\n"


def _render_points(finding: Points) -> str:
    """Render a config like the points template, in which the other splits inherit the pipes of the training data."""
    columns, labels = finding.shared["columns"], finding.shared["labels"]
    shares = _held_out(finding)
    pipes = [
        {"type": "SequenceWrapper", "datapipe": [finding.splits["train"]["path"]]},
        finding.opener,
        {"type": "src.data.ReadPoint", **finding.shared},
        {"type": "ItrToLst"},
    ]
    pipes += [{"type": "HoldOut", "share": sum(shares.values())}] if shares else []
    lines = [
        "# Classification of numeric rows. Run `alchemy check train.toml`, then `alchemy run train.toml`.",
        "[task]",
        'type = "DefaultTask"',
        *_list("outputpipes", [{"type": "Classify", "names": labels}, {"type": "Collect", "varname": "preds"}]),
        *_list("evalpipes", [{"type": "Accuracy"}, {"type": "src.scores.WorstClass"}]),
        "",
        f"[task.datasets.train]  # {finding.format_size('train')}",
        *map(_line, ("batch_size", "shuffle", "collate_fn"), (32, True, {"type": "Pad"})),
        *_list("pipes", pipes),
    ]
    begin = 0.0
    for split in [*shares, *(name for name in finding.splits if name != "train")]:
        lines += ["", f"[task.datasets.{split}]", _line("like", "train")]
        if split in shares:  # consecutive fractions of the rows, in the same order
            held = {"share": shares[split], "held": True, **({"skip": begin} if begin else {})}
            lines += [_line("pipes.HoldOut", held, "fraction of the training data")]
            begin += shares[split]
        else:
            lines += [_line("pipes.SequenceWrapper.datapipe", [finding.splits[split]["path"]])]
            lines += ["pipes.HoldOut = false"] if shares else []
    tables: dict[str, dict[str, Any]] = {
        "model": {"type": "src.model.PointClassifier", "num_inputs": len(columns), "num_classes": len(labels)},
        "criterion": {"type": "CrossEntropy", "target": "label"},
        "optim": {"type": "AdamW", "lr": 0.01, "weight_decay": 0.01},
        "sched": {"type": "LineWarmup", "epochs": 20, "num_warmup_steps": 0.1, "pipes": [{"type": "EvalEEPipeline"}]},
        "checkpoint": {"monitor": "dev/accuracy"},
    }
    for name, table in tables.items():
        lines += ["", *_table(name, table)]
    return "\n".join(lines) + "\n"


def _list(key: str, parts: list[dict[str, Any]]) -> list[str]:
    return [f"{key} = [", *(f"    {format_inline(part)}," for part in parts), "]"]


def _table(name: str, table: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(_line(key, value) for key, value in table.items())]


def _splits(finding: Finding) -> list[str]:
    lines = []
    for split, own in finding.splits.items():
        value: Any = own["path"] if len(own) == 1 else own
        lines.append(_line(split, value, finding.format_size(split)))
    held = _held_out(finding).items()
    return lines + [
        _line(split, share, "fraction of the training data to hold out, or a file") for split, share in held
    ]


def _held_out(finding: Finding) -> dict[str, float]:
    """Return the fraction of the training data that each split without files holds out."""
    held = [split for split in ("dev", "test") if split not in finding.splits]
    if held == ["test"]:  # with a dev file, the test set is assumed to be elsewhere or not wanted
        held = []
    return dict.fromkeys(held, 0.1 if finding.sizes["train"] >= FEW else 0.2)


def _line(key: str, value: object, comment: str = "") -> str:
    comment = comment or COMMENTS.get(key, "")
    # in file and column names, ${ is not a reference: escape it
    return f"{key} = {format_inline(value).replace(MARK, ESCAPED)}{f'  # {comment}' if comment else ''}"
