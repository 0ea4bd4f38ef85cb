"""The command with a tiny BERT on a few lines: it trains, evaluates, predicts, resumes, and reports errors."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from alchemy.config.load import prepare_cfg
from alchemy.records.metrics_file import read_metrics
from alchemy.text import load_tokenizer
from tests.examples.thunews import (
    ALL,
    LABELS,
    TRAIN,
    flags,
    furnished,
    rows,
    tables,
    write_bert,
    write_data,
    write_model,
)

transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data and a model."""
    return furnished(tmp_path, monkeypatch)


def test_the_whole_command(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = flags(
        *ALL, "--do_lower_case", "--evaluate_during_training", num_train_epochs=2.5, logging_steps=3, save_steps=5
    )
    assert thunews.main(argv) == 0
    out = place / "out"
    # 24 texts in batches of 8: 3 updates per epoch, 7.5 in total
    assert [path.name for path in thunews.checkpoints(out)] == ["checkpoint-5", "checkpoint-8"]
    told = thunews.translate.training(thunews.parse(argv), LABELS)
    assert prepare_cfg(out / "config.toml").plain() == prepare_cfg(told).plain()
    assert (out / "config.toml").read_text() in capsys.readouterr().out
    lines = (out / "eval_results.txt").read_text().splitlines()
    assert lines == sorted(lines)
    assert {"acc", "f1", "acc_and_f1", "loss"} <= set(tables(out))
    assert float(tables(out)["acc"]) == 1.0
    answers = rows(out)
    assert [row["label"] for row in answers] == [label for label, _ in TRAIN[5::-1]]
    assert all(LABELS[int(row["pred"])] == row["label"] for row in answers)
    [training] = [record for record in (out / "records").iterdir() if (record / "ledger.jsonl").exists()]
    scored = [row["update"] for row in read_metrics(training / "metrics.jsonl") if "dev/accuracy" in row["values"]]
    assert scored == [3, 6, 8]
    assert list(training.glob("events.out.tfevents.*"))


def test_a_checkpoint_is_for_others_to_read(thunews: Any, place: Path) -> None:
    assert thunews.main(flags("--do_train", "--do_lower_case", max_steps=2, warmup_steps=1)) == 0
    [folder] = thunews.checkpoints(place / "out")
    assert folder.name == "checkpoint-2"
    cut = transformers.AutoTokenizer.from_pretrained(folder)
    [kept] = (place / "out" / "records").glob("*/tokenizer/input_ids")
    own = load_tokenizer(kept)
    for _, text in TRAIN[:3]:
        assert cut(text)["input_ids"] == [own.bos, *own.encode(text), own.eos]
        assert own.unk not in own.encode(text)
    state = load_file(next((place / "out" / "records").glob("*/state/last/model.safetensors")))
    for name, value in transformers.AutoModel.from_pretrained(folder).state_dict().items():
        assert value.equal(state[f"encoder.inner.{name}"])
    head = load_file(folder / "head.safetensors")
    assert head.keys() == {name for name in state if not name.startswith("encoder.")}
    assert all(value.equal(state[name]) for name, value in head.items())


def test_all_checkpoints_are_scored_and_the_best_predicts(thunews: Any, place: Path) -> None:
    assert thunews.main(flags("--do_train", max_steps=4, save_steps=2)) == 0
    # evaluation flags apply as well, and training is not repeated
    assert thunews.main(flags("--do_eval", "--do_predict", "--eval_all_checkpoints", per_gpu_eval_batch_size=5)) == 0
    out = place / "out"
    first, last = (tables(out / f"checkpoint-{number}") for number in (2, 4))
    assert first["loss"] != last["loss"]
    assert tables(out) == last
    best = first if float(first["acc"]) >= float(last["acc"]) else last
    predicted = rows(out)
    shutil.rmtree(out / ("checkpoint-4" if best is first else "checkpoint-2"))
    assert thunews.main(flags("--do_eval", "--do_predict")) == 0
    assert [row["pred"] for row in predicted] == [row["pred"] for row in rows(out)]
    assert float(tables(out)["loss"]) == pytest.approx(float(best["loss"]))


@pytest.mark.parametrize(
    ("kind", "head"),
    [("xlnet", "_cnn"), ("albert", "_rcnn"), ("roberta", "_lstm"), ("distilbert", "_gru"), ("electra", "")],
)
def test_other_families(thunews: Any, place: Path, kind: str, head: str) -> None:
    write_model(place, kind)
    values = {"lstm_hidden_size": 4, "gru_hidden_size": 4, "max_seq_length": 16}
    argv = flags(*ALL, model_type=kind + head, model_name_or_path=kind, max_steps=2, **values)
    assert thunews.main(argv) == 0
    assert len(rows(place / "out")) == 6
    before = tables(place / "out")
    assert thunews.main([word for word in argv if word != "--do_train"]) == 0
    assert tables(place / "out") == before


@pytest.mark.parametrize("kind", ["bert", "xlnet", "roberta", "distilbert"])
def test_answers_are_those_that_transformers_gives(thunews: Any, place: Path, kind: str) -> None:
    shutil.rmtree(place / "bert")
    write_model(place, kind)
    argv = flags(*ALL[::2], model_type=kind, model_name_or_path=kind, max_steps=3, max_seq_length=10)
    assert thunews.main(argv) == 0
    [folder] = thunews.checkpoints(place / "out")
    cut = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    model, head = transformers.AutoModel.from_pretrained(folder).eval(), load_file(folder / "head.safetensors")
    for row, (_, text) in zip(rows(place / "out"), TRAIN[5::-1], strict=True):
        with_segments = kind in ("bert", "xlnet")
        ids = cut(text, truncation=True, max_length=10, return_tensors="pt", return_token_type_ids=with_segments)
        assert ids["input_ids"].shape == (1, 10)
        with torch.no_grad():
            made = model(**ids)
        first = made.last_hidden_state[0, -1 if kind == "xlnet" else 0]
        text_D = getattr(made, "pooler_output", [first])[0]
        probs = (head["out.weight"] @ text_D + head["out.bias"]).softmax(0)
        assert int(row["pred"]) == int(probs.argmax())
        assert float(row["prob"]) == pytest.approx(float(probs.max()), abs=1e-5)


LINES = "labels,text\n体育,球赛冠军\n财经,股票基金\n"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"train": "labels,text\n体育,球赛\n财经\n"}, r"train.csv:3 expected 2 cells as in the first row, got 1"),
        ({"train": "label,text\n体育,球赛\n"}, r"train.csv:1 there is no column 'labels'; did you mean 'label'"),
        ({"train": LINES + "体育, \n"}, r"train.csv:4 the text is ' ', expected a non-empty string"),
        ({"train": LINES + ",球赛\n"}, r"train.csv:4 the label is empty"),
        (
            {"train": LINES, "dev": "labels,text\n财经,股票\n财金,股票\n"},
            r"dev.csv:3 unknown label '财金'",
        ),
        ({"test": 'text\n""\n'}, r"test.csv:2 the text is '', expected a non-empty string; fix the row$"),
        ({"test": "text\n球赛\n\n\n股票\n"}, r"test.csv:3 .*empty"),
        ({"train": "classes,text\n体育,球赛\n"}, r"train.csv:1 there is no column 'labels'; it has classes, text; "),
        ({"train": 'labels,text\n体育,"球赛\n'}, r"train.csv:2 a quote is never closed; close the quote$"),
        ({"train": "labels,text\n"}, r"found no samples in .*train.csv; is the file empty\?"),
    ],
)
def test_wrong_data_is_told_with_file_and_line_before_anything_is_written(
    thunews: Any, place: Path, files: dict[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_data(place / "data", **files)
    assert thunews.main(flags(*ALL)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    assert re.search(told, error.rstrip())
    assert not (place / "out").exists()


def test_blank_lines_that_are_no_texts(thunews: Any, place: Path) -> None:
    write_data(place / "data", test='text\n"球赛\n\n冠军"\n股票\n\n', dev="labels,text\n体育,球赛\n\n财经,股票\n")
    assert thunews.main(flags(*ALL, max_steps=1)) == 0
    assert len(rows(place / "out")) == 2


def test_texts_in_a_first_column_of_another_name(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_data(place / "data", test="标题,来源\n球赛,a\n股票,b\n")
    assert thunews.main(flags(*ALL, max_steps=1)) == 0
    assert len(rows(place / "out")) == 2
    assert "test.csv has no column 'text': reading the first column, with the first line, '标题'" in "".join(
        capsys.readouterr()
    )


def test_a_label_that_is_not_in_the_list_of_labels(
    thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "data" / "labels.txt").write_text("财经\n教育\n", encoding="utf-8")
    assert thunews.main(flags("--do_train")) == 2
    assert "train.csv:2 unknown label '体育'; expected one of 财经, 教育" in capsys.readouterr().err


def test_labels_of_a_folder_below_the_home_of_the_user(
    thunews: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place))
    (place / "data" / "labels.txt").write_text("财经\n教育\n体育\n", encoding="utf-8")
    assert thunews.labels_of("thunews", "~/data") == ["财经", "教育", "体育"]


def test_a_vocabulary_of_another_model(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(place / "bert", place / "larger")
    with (place / "larger" / "vocab.txt").open("a", encoding="utf-8") as file:
        file.write("更\n多\n")
    assert thunews.main(flags("--do_train", tokenizer_name="larger", max_steps=1)) == 2
    assert "the tokenizer has" in capsys.readouterr().err
    assert thunews.main(flags("--do_train", max_steps=1)) == 0  # nothing was written: it may start


def test_a_length_without_room_for_a_text(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert thunews.main(flags("--do_train", max_seq_length=2)) == 2
    told = "--max_seq_length=2 leaves no room for text next to 2 special tokens; pass 3 or more"
    assert told in capsys.readouterr().err
    assert not (place / "out").exists()


def test_a_warm_up_that_has_no_end(thunews: Any, place: Path) -> None:
    assert thunews.main(flags("--do_train", num_train_epochs=1, warmup_steps=1000)) == 0
    [log] = (place / "out" / "records").glob("*/run.log")
    assert log.read_text().count("the warmup (1000) is not shorter than training (3)") == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n", "bert \\d+ of \\d+ tokens of the first texts are not in the vocabulary"),
        ("[PAD]\n[CLS]\n[SEP]\n球\n", "vocab.txt missing \\[UNK\\]"),
        (None, "bert'; expected tokenizer.json, vocab.txt"),
    ],
)
def test_a_vocabulary_that_cannot_be(
    thunews: Any, place: Path, content: str | None, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place / "bert" / "vocab.txt"
    file.unlink() if content is None else file.write_text(content)
    assert thunews.main(flags("--do_train")) == 2
    assert re.search(told, capsys.readouterr().err)
    assert not (place / "out").exists()


def test_case_of_a_tokenizer_json_is_that_of_the_flags(thunews: Any, place: Path) -> None:
    cut = transformers.AutoTokenizer.from_pretrained(place / "bert", do_lower_case=False)
    cut.save_pretrained(place / "bert")
    assert cut.unk_token_id in cut(TRAIN[0][1])["input_ids"]
    assert thunews.main(flags("--do_train", "--do_lower_case", max_steps=1)) == 0
    saved = transformers.AutoTokenizer.from_pretrained(place / "out" / "checkpoint-1")
    assert saved.unk_token_id not in saved(TRAIN[0][1])["input_ids"]


@pytest.mark.parametrize("case", [(), ("--do_lower_case",)])
def test_case_of_a_training_is_not_forgotten(thunews: Any, place: Path, case: tuple[str, ...]) -> None:
    if not case:
        shutil.rmtree(place / "bert")
        write_bert(place / "bert", case=True)
    assert thunews.main(flags(*ALL, *case, max_steps=2)) == 0
    before = (place / "out" / "eval_results.txt").read_bytes(), rows(place / "out")
    other = () if case else ("--do_lower_case",)
    assert thunews.main(flags("--do_eval", "--do_predict", *other)) == 0
    assert ((place / "out" / "eval_results.txt").read_bytes(), rows(place / "out")) == before


def test_a_head_of_another_training(thunews: Any, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert thunews.main(flags("--do_eval")) == 2
    assert "has no checkpoint to evaluate; train one with --do_train" in capsys.readouterr().err
    assert thunews.main(flags("--do_train", max_steps=1)) == 0
    assert thunews.main(flags("--do_eval", filter_num=9)) == 2
    assert "head.safetensors the head does not match" in capsys.readouterr().err
