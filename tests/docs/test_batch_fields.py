"""The tables of docs/batch-fields.md match the batches, outputs, rows and losses of the ready-made tasks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from alchemy import Run, prepare_cfg, run
from alchemy.cli import main
from alchemy.data.loader import get_dataloader
from alchemy.pipeline import EvalPipeline, OutputPipeline
from alchemy.plain_model import build_model
from alchemy.task import build_task, load_datasets
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "batch-fields.md").read_text("utf-8")
EVALUATION = "evaluation only"
HEAD = 'seed = 1\nplugins = []\noptim = { type = "AdamW" }\nsched = { type = "Constant", epochs = 1 }\n'
EMBEDDING = 'encoder = { type = "Embedding", dim = 4 }'
TEXTS = "a fine film with a long end", "a dull film", "sad"

# by section of the page: the name of a file and its text, [task], the options of its data, [model]
TASKS = {
    "Classification, one label": (
        "data.csv",
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, ("good", "bad", "bad"))),
        'type = "Classification"\ntokenizer = "Words"',
        "",
        f'type = "TextClassifier"\n{EMBEDDING}',
    ),
    "Classification, several labels": (
        "data.csv",
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, ("good|long", "bad", "bad"))),
        'type = "Classification"\nkind = "multi"\ntokenizer = "Words"',
        'separator = "|"',
        f'type = "TextClassifier"\n{EMBEDDING}',
    ),
    "Classification, a number": (
        "data.csv",
        "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, (4.5, 1, 2))),
        'type = "Classification"\nkind = "regression"\ntokenizer = "Words"',
        "",
        f'type = "TextClassifier"\n{EMBEDDING}',
    ),
    "Classification of pairs": (
        "data.csv",
        "text,pair,label\n" + "".join(f"{text},it was,{label}\n" for text, label in zip(TEXTS, ("yes", "no", "no"))),
        'type = "Classification"\npair = true\ntokenizer = "Words"',
        'pair = "pair"',
        f'type = "TextClassifier"\n{EMBEDDING}',
    ),
    "Relation": (
        "data.tsv",
        "Cause\tthe <e1> heavy rain </e1> made <e2> mud </e2>\nOther\t<e1> Ann </e1> saw <e2> Bob </e2>\n"
        "Other\t<e1> he </e1> left <e2> it </e2>\n",
        'type = "Relation"\ntokenizer = "Words"',
        "",
        f'type = "RelationClassifier"\n{EMBEDDING}',
    ),
    "Tagging": (
        "data.txt",
        "Ann B-PER\nlives O\nin O\nRome B-LOC\n\nhello O\nBob B-PER\n\nRome B-LOC\n",
        'type = "Tagging"\ntokenizer = "Characters"',  # several tokens per word
        "",
        f'type = "Tagger"\n{EMBEDDING}',
    ),
    "Translation": (
        "data.tsv",
        "a b c d e\tx y z\na b\tx y z w\nc\tz\n",
        'type = "Translation"\nlimits = { max_length = 2 }',
        "",
        'type = "Translator"\nnetwork = { type = "AttentionLSTM", dim = 4, hidden = 4 }',
    ),
}
TEMPLATE, IMAGES = "The points template", "Images"
IMAGES_CFG = f"""{HEAD}
[task]
type = "DefaultTask"
outputpipes = [{{ type = "Classify", label = "label_id", keep = ["file"] }}]
[task.datasets.train]
batch_size = 3
collate_fn = "alchemy.data.collate.Pad"
pipes = [{{ type = "ImageFolder", path = "images", size = [4, 5], scale = true }}]
[task.datasets.dev]
like = "train"
[model]
type = "{__name__}.net"
inputs = {{ input = "image" }}
[criterion]
type = "CrossEntropy"
target = "label_id"
"""


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 5, 2))


def tables(section: str) -> dict[str, list[list[str]]]:
    """Return the tables of a section by the first cell of their header, as rows of cells without backquotes."""
    text = re.split(rf"^## {re.escape(section)}$", PAGE, flags=re.MULTILINE)[1].partition("\n## ")[0]
    found = {}
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        head, _, *rows = [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        found[head[0]] = rows
    return found


def kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    if isinstance(value, list):
        kinds = {kind_of(item) for item in value}
        assert len(kinds) == 1, value
        return f"list[{kinds.pop()}]"
    return type(value).__name__


def compare(rows: list[list[str]], found: dict[str, Any], sizes: dict[str, int]) -> None:
    """Check names in order, dtypes and shapes; the same letter always means the same size."""
    assert [row[0] for row in rows] == list(found)
    for name, dtype, shape, *_ in rows:
        value, letters = found[name], shape.split(", ")
        assert kind_of(value) == dtype, name
        actual = list(value.shape) if isinstance(value, torch.Tensor) else [len(value)]
        assert [sizes.setdefault(letter, size) for letter, size in zip(letters, actual, strict=True)] == actual, name
        assert all(sizes[letter] == int(letter) for letter in letters if letter.isdigit()), name


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run with a task, its data and a model."""
    monkeypatch.chdir(tmp_path)
    if request.param == TEMPLATE:
        assert main(["new", "."]) == 0
        monkeypatch.syspath_prepend(tmp_path)
        cfg: Any = prepare_cfg("train.toml", overrides=["plugins=[]"])
    elif request.param == IMAGES:
        for number, label in enumerate(("cat", "dog", "dog")):
            Path("images", label).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (6, 6), color=(number, 0, 0)).save(Path("images", label, f"{number}.png"))
        Path("train.toml").write_text(IMAGES_CFG)
        cfg = prepare_cfg("train.toml")
    else:
        name, text, task, data, model = TASKS[request.param]
        Path(name).write_text(text)
        lines = f'[task]\n{task}\n[task.data]\ntrain = "{name}"\ndev = "{name}"\n{data}\n[model]\n{model}\n'
        Path("train.toml").write_text(HEAD + lines)
        cfg = prepare_cfg("train.toml")
    with Run(cfg) as made:
        made.task = build_task(made)
        made.model = build_model(made)
        load_datasets(made)
        yield made
    for name in [name for name in sys.modules if name == "src" or name.startswith("src.")]:
        del sys.modules[name]


@pytest.mark.parametrize(("made", "section"), [(name, name) for name in (*TASKS, TEMPLATE, IMAGES)], indirect=["made"])
def test_the_tables_of_a_task_match_its_batches(made: Run, section: str) -> None:
    shown, batches = tables(section), {}
    for split in ("train", "dev"):
        data, options = made.task.dataset(split)
        batches[split] = next(iter(get_dataloader(data, seed=1, **options)))
    sizes: dict[str, int] = {}
    compare(shown["field"], batches["dev"], sizes)
    compare([row for row in shown["field"] if EVALUATION not in row[3]], batches["train"], {})
    assert sizes["B"] == (150 if section == TEMPLATE else 3)
    made.model.train()
    outputs = made.model.forward(batches["dev"])
    compare([row for row in shown["output"] if EVALUATION not in row[3]], dict(outputs), sizes)
    assert len({sizes.get(letter, letter) for letter in "TWSC"}) == 4  # so that letters cannot be confused
    (count,) = [row[2] for row in tables("The loss")["model"] if row[0] == section]
    total, counted = made.model.loss(outputs, batches["dev"])
    assert total.dim() == 0
    assert counted == eval(count, {}, {**sizes, **batches["dev"]})
    made.model.eval()
    compare(shown["output"], dict(made.model.forward(batches["dev"])), sizes)
    rows = made.task.eval_step(batches["dev"])[1]
    assert [row[:2] for row in shown["row"]] == [[name, type(value).__name__] for name, value in rows[0].items()]


SEEN: dict[str, Any] = {}


@OutputPipeline.register()
class SeeOutputs(OutputPipeline):
    def __init__(self) -> None:
        super().__init__()

    def __call__(self, outputs: Any, inputs: Any) -> Any:
        SEEN["outputs"], SEEN["inputs"] = outputs, inputs
        return outputs


@EvalPipeline.register()
class SeeScores(EvalPipeline):
    def __init__(self) -> None:
        super().__init__()

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        SEEN["scores"] = kwargs
        return kwargs


PIPES = f'outputpipes = [{{ type = "{__name__}.SeeOutputs" }}]\nevalpipes = [{{ type = "{__name__}.SeeScores" }}]\n'


def test_the_pipes_of_a_ready_made_task_receive_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name, text, task, data, model = TASKS["Classification, one label"]
    Path(name).write_text(text)
    lines = f'[task]\n{task}\n{PIPES}[task.data]\ntrain = "{name}"\ndev = "{name}"\n{data}\n[model]\n{model}\n'
    Path("train.toml").write_text(HEAD + lines)
    run([prepare_cfg("train.toml")], device=[-1], no_file=True)
    names = [row[0] for row in tables("Classification, one label")["row"]]
    assert [list(row) for row in SEEN["outputs"]] == [names] * 3
    assert "input_ids" in SEEN["inputs"]
    assert [row["text"] for row in SEEN["scores"]["preds"]] == list(TEXTS)
    assert {"preds", "accuracy", "macro_f1", "loss"} <= SEEN["scores"].keys()


def test_the_pipes_of_a_default_task_receive_the_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text('{"input": [1.0, 2.0], "label": 0}\n{"input": [0.0, 1.0], "label": 1}\n')
    pipes = 'pipes = [{ type = "JsonlOpener", datapipe = ["data.jsonl"] }, { type = "ItrToLst" }]\n'
    split = f'batch_size = 2\ncollate_fn = "alchemy.data.collate.Pad"\n{pipes}'
    Path("train.toml").write_text(
        f'{HEAD}[task]\ntype = "DefaultTask"\n{PIPES}[task.datasets.train]\n{split}[task.datasets.dev]\n{split}'
        '[model]\ntype = "torch.nn.Linear"\nin_features = 2\nout_features = 2\n'
        '[criterion]\ntype = "CrossEntropy"\ntarget = "label"\n'
    )
    run([prepare_cfg("train.toml")], device=[-1], no_file=True)
    assert list(SEEN["outputs"]) == ["logits", "loss_sum", "count", "loss"]
    assert list(SEEN["inputs"]) == ["input", "label"]
    assert list(SEEN["scores"]) == ["loss"]
