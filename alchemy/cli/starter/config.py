"""The config of a project, for data that was looked at."""

from __future__ import annotations

from typing import Any

from alchemy.config.references import ESCAPED, MARK
from alchemy.config.write import inline
from alchemy.data.sniff.finding import Finding

TITLES = {
    "text": "Text classification",
    "ner": "Tags of words or characters",
    "pairs": "Classification of pairs of texts",
    "translation": "Translation",
}
# what is trained, and how; everything that is not here is a default
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
OPTIMIZERS = {  # the text classifier learns sparse vectors, which Adagrad updates fastest
    "text": {"type": "Adagrad", "lr": 0.05},
    "ner": {"type": "AdamW", "lr": 0.004},
    "pairs": {"type": "AdamW", "lr": 0.001},
    "translation": {"type": "AdamW", "lr": 0.001},
}
EPOCHS = {"text": 8, "ner": 10, "pairs": 10, "translation": 15}
FEW = 100  # rows, of which a tenth is too little to score
COMMENTS = {
    "num_warmup_steps": "a share of all updates",
    "tokenizer": "learnt from the training texts",
    "max_length": "tokens; a longer text is cut",
    "bad": "rows that cannot be read are left out, and counted",
    "encoding": "of the files",
    "violations": "tags that break the rules of the scheme begin a span",
}


def render_config(kind: str, finding: Finding) -> str:
    """The text of the config."""
    sched = {"type": "LineWarmup", "epochs": EPOCHS[kind], "num_warmup_steps": 0.1}
    lines = [
        f"# {TITLES[kind]}. First alchemy check train.toml, then alchemy run train.toml",
        *_table("task", finding.task),
    ]
    lines += ["", "[task.data]", *_splits(finding), *(_line(key, value) for key, value in finding.shared.items())]
    for name, table in (("model", MODELS[kind]), ("optim", OPTIMIZERS[kind]), ("sched", sched)):
        lines += ["", *_table(name, table)]
    return "\n".join(lines) + "\n"


def _table(name: str, table: dict[str, Any]) -> list[str]:
    return [f"[{name}]", *(_line(key, value) for key, value in table.items())]


def _splits(finding: Finding) -> list[str]:
    lines = []
    for split, own in finding.splits.items():
        value: Any = own["path"] if len(own) == 1 else own
        lines.append(_line(split, value, finding.tell_size(split)))
    held = [split for split in ("dev", "test") if split not in finding.splits]
    if held == ["test"]:  # whoever keeps a development set has a test set elsewhere, or wants all rows for training
        held = []
    share = 0.1 if finding.sizes["train"] >= FEW else 0.2
    lines += [_line(split, share, "a share of the training data that is held out, or a file") for split in held]
    return lines


def _line(key: str, value: object, comment: str = "") -> str:
    comment = comment or COMMENTS.get(key, "")
    # a ${ in the name of a file or of a column is no reference; quotes leave both signs as they are
    return f"{key} = {inline(value).replace(MARK, ESCAPED)}{f'  # {comment}' if comment else ''}"
