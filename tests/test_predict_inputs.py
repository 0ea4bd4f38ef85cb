"""Prediction with any record: rows through the pipes of a DefaultTask, or a custom task in its own terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import alchemy
from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError
from alchemy.model import AlchemyModel
from alchemy.pipeline import DataPipeline, ItrDataPipeline
from alchemy.runner import run_task
from alchemy.task import AlchemyTask, DefaultTask
from tests import gan, toy
from tests.logs import warned

NAMES = ["left", "right"]
ROWS = [{"x": str(x / 4), "label": NAMES[x > 0]} for x in range(-8, 8)]


class ReadRow(ItrDataPipeline):
    """Convert a row of text to a sample, with or without a label."""

    def __init__(self, datapipe: Any) -> None:
        super().__init__(datapipe)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.datapipe:
            label = {"label": NAMES.index(row["label"])} if "label" in row else {}
            yield {"point": [float(row["x"])], **label}


class Twice(ReadRow):
    def __iter__(self) -> Iterator[dict[str, Any]]:
        for sample in super().__iter__():
            yield from (sample, sample)


class Own(ItrDataPipeline):
    """Collate lists of samples, as projects do it themselves."""

    def __init__(self, datapipe: Any, **kwargs: Any) -> None:
        super().__init__(datapipe)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for samples in self.datapipe:
            yield {name: torch.tensor([sample[name] for sample in samples]) for name in samples[0]}


class Sides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 2)

    def forward(self, point: Tensor) -> Tensor:
        return self.layer(point)


@AlchemyModel.register()
class NewModel(AlchemyModel):
    def __init__(self, *, width: int = 2) -> None:
        super().__init__()
        self.model = nn.Linear(1, width)

    def forward(self, batch: Any) -> dict[str, Any]:
        return {"logits": self.model(batch["point"]), "of_all": torch.zeros(7)}

    def loss(self, outputs: Any, batch: Any) -> tuple[Tensor, int]:
        loss = nn.functional.cross_entropy(outputs["logits"], batch["label"], reduction="sum")
        return loss, len(batch["label"])


@AlchemyModel.register()
class OldModel(AlchemyModel):
    """Trains in `forward`, takes no arguments, and ignores `model_path`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(1, 2)

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {"logits": self.model(batch["point"])}
        if needs_loss:
            loss = nn.functional.cross_entropy(outputs["logits"], batch["label"])
            outputs["loss"] = self.backward.backward(loss, requires_grad=requires_grad)
        return outputs


@AlchemyTask.register()
class OwnQuestions(DefaultTask):
    """A custom task that predicts from numbers."""

    def question(self, item: Any) -> dict[str, str]:
        return {"x": str(item)}


@AlchemyTask.register()
class OwnData(AlchemyTask):
    """A custom task that loads its data without pipes."""

    def load_dataset(self, split: str, **kwargs: Any) -> None:
        rows = [{"point": [float(row["x"])], "label": NAMES.index(row["label"])} for row in ROWS]
        self._datasets[split] = (rows, {"collate_fn": {"type": "alchemy.data.collate.Pad"}, **kwargs})


HERE = __name__
MODELS = ["Sides", "NewModel", "OldModel"]


def config(root: Path, model: str = "Sides", pipes: list[Any] | None = None, **task: Any) -> dict[str, Any]:
    path = root / "rows.csv"
    path.write_text("x,label\n" + "".join(f"{row['x']},{row['label']}\n" for row in ROWS))
    chain = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [str(path)]},
        {"type": "alchemy.pipeline.openers.CsvOpener"},
        {"type": "alchemy.pipeline.itr.Shuffle"},
        {"type": f"{HERE}.ReadRow"},
        *(pipes if pipes is not None else [{"type": "alchemy.pipeline.lst.ItrToLst"}]),
    ]
    split: dict[str, Any] = {"pipes": chain, "batch_size": 4, "collate_fn": {"type": "alchemy.data.collate.Pad"}}
    cfg = {
        "tag": "rows",
        "seed": 1,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": {
            "type": "alchemy.task.DefaultTask",
            "outputpipes": [
                {"type": "alchemy.pipeline.output.Classify", "names": NAMES},
                {"type": "alchemy.pipeline.output.Collect", "varname": "preds"},
                {"type": "alchemy.pipeline.output.SaveAppend", "filename": "preds.jsonl"},
            ],
            "evalpipes": [{"type": "alchemy.pipeline.eval.Accuracy"}],
            "datasets": {"train": split, "dev": split},
            **task,
        },
        "model": {"type": f"{HERE}.{model}"},
        "optim": {"type": "alchemy.optim.Adam", "lr": 0.2},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 12},
        "checkpoint": {"asynchronous": False},
    }
    return (
        cfg if model != "Sides" else cfg | {"criterion": {"type": "alchemy.nn.losses.CrossEntropy", "target": "label"}}
    )


def trained(root: Path, *args: Any, **options: Any) -> Path:
    record = run_task(config(root, *args, **options), raise_errors=True).record_dir
    assert record is not None
    (root / "rows.csv").unlink()  # the record is sufficient
    return Path(record)


@pytest.mark.parametrize("model", MODELS)
def test_rows_go_through_the_pipes_behind_the_opener(model: str, tmp_path: Path) -> None:
    record = trained(tmp_path, model)
    before = sorted(record.iterdir())
    rows = [{"x": x} for x in (-1.5, 1.5, -1.0, 1.0, 1.25)]
    with warned() as said, alchemy.load(record, batch_size=2) as loaded:
        answers = loaded.predict(rows)
        assert isinstance(loaded.module, nn.Module) and not loaded.module.training
    assert [answer["pred_name"] for answer in answers] == ["left", "right", "left", "right", "right"]
    assert sorted(record.iterdir()) == before  # what is written in an evaluation is not written now
    assert not [line for line in said if "prediction skips" in line]


def test_finished_samples_do_without_the_pipes(tmp_path: Path) -> None:
    record = trained(tmp_path)
    with alchemy.load(record, pipes=False) as model:
        assert model.predict([{"point": [-1.5]}])[0]["pred_name"] == "left"
        with pytest.raises(AlchemyError, match=r"Sides\.forward needs 'point', but the batch has no field 'point'"):
            model.predict([{"x": "1"}])


def test_without_output_pipes_an_answer_is_what_the_model_gave_for_its_sample(tmp_path: Path) -> None:
    record = trained(tmp_path, "NewModel", outputpipes=[], evalpipes=[])
    with alchemy.load(record) as model:
        (answer,) = model.predict([{"x": "2"}])
        expected = model.module(torch.tensor([[2.0]]))[0].tolist()
    assert answer == {"logits": pytest.approx(expected)}


@pytest.mark.parametrize(
    "pipes",
    [
        [{"type": "alchemy.pipeline.itr.Batch", "batch_size": 4}, {"type": f"{HERE}.Own"}],
        [{"type": "alchemy.pipeline.lst.ItrToLst"}, {"type": "alchemy.pipeline.lst.Take", "n": 9}],
        [{"type": "alchemy.pipeline.itr.Batch", "batch_size": 4}],
    ],
)
def test_batches_and_choices_of_a_chain_are_those_of_questions(pipes: list[Any], tmp_path: Path) -> None:
    cfg = config(tmp_path, pipes=pipes)
    if "Batch" in pipes[0]["type"]:
        for split in cfg["task"]["datasets"].values():
            split.pop("batch_size", None)  # both splits are in one table
            if len(pipes) > 1:
                split.pop("collate_fn", None)
    record = run_task(cfg, raise_errors=True).record_dir
    with alchemy.load(record) as model:
        assert [row["pred"] for row in model.predict([{"x": "-2"}, {"x": "2"}])] == [0, 1]


def test_a_task_of_a_project_says_what_a_question_is_and_how_a_batch_is_made(tmp_path: Path) -> None:
    with alchemy.load(trained(tmp_path, type=f"{HERE}.OwnQuestions")) as model:
        assert [row["pred_name"] for row in model.predict([-1.5, 1.5])] == ["left", "right"]
    table = {"train": {"batch_size": 4}, "dev": {"batch_size": 4}}
    with alchemy.load(trained(tmp_path, type=f"{HERE}.OwnData", datasets=table)) as model:
        assert model.predict([{"point": [1.5]}])[0]["pred_name"] == "right"


def test_several_optimizers_are_no_hindrance(tmp_path: Path) -> None:
    record = run_task(gan.config(tmp_path), raise_errors=True).record_dir
    with alchemy.load(record) as model:
        assert len(model.predict([{"z": torch.zeros(2)}] * 3)) == 3
        assert type(model.module).__name__ == "Pair"


@pytest.mark.parametrize(
    ("pipes", "item", "message"),
    [
        (None, {"y": "1"}, r"items\[1\] .*ReadRow failed at .*has no 'x'.*or pass finished samples with"),
        (None, {"x": "one"}, r"items\[1\] .*could not convert string to float: 'one'"),
        ([{"type": f"{HERE}.Twice"}], {"x": "1"}, "items.*the pipes of the split 'dev' turn this input into 2 samples"),
    ],
)
def test_what_cannot_be_asked_is_told(pipes: Any, item: Any, message: str, tmp_path: Path) -> None:
    cfg = config(tmp_path)
    cfg["sched"]["epochs"] = 1
    record = run_task(cfg, raise_errors=True).record_dir
    overrides = []
    if pipes:
        overrides = [f'task.datasets.{split}.pipes.ReadRow.type="{HERE}.Twice"' for split in ("train", "dev")]
    with alchemy.load(record, overrides=overrides) as model:
        answers = model.predict_stream([{"x": "1"}, item])
        if not pipes:
            assert next(answers)["pred"] in (0, 1)  # the rows before it have predictions
        with pytest.raises(AlchemyError, match=message):
            next(answers)


def test_outputs_without_rows_are_told(tmp_path: Path) -> None:
    record = run_task(toy.config(str(tmp_path), model__type="tests.toy.OldLine", sched__epochs=1), raise_errors=True)
    with (
        alchemy.load(record.record_dir) as model,
        pytest.raises(AlchemyError, match="cannot split the batch into samples"),
    ):
        model.predict([{"x": torch.ones(1), "y": torch.ones(1)}])


def test_the_command_line_answers_rows_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.toml").write_text(dumps(config(tmp_path)))
    assert main(["run", "rows.toml", "--device", "-1"]) == 0
    Path("new.csv").write_text("id,x,label\n7,-1.5,right\n8,1.5,right\n")
    capsys.readouterr()
    assert main(["predict", "latest", "--device", "-1", "--file", "new.csv"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["label"], row["pred_name"]) for row in rows] == [
        ("7", "right", "left"),
        ("8", "right", "right"),
    ]
    Path("bad.csv").write_text("id\n7\n")
    assert main(["predict", "latest", "--device", "-1", "--file", "bad.csv"]) == 2
    assert "bad.csv:2 [task.datasets.dev]" in capsys.readouterr().err


DataPipeline.register()(ReadRow)
DataPipeline.register()(Twice)
DataPipeline.register()(Own)
