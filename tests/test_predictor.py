"""Prediction from a record alone: as in training, in order, for any batch size, with errors for unreadable input."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import alchemy
from alchemy.context import sym_tbl
from alchemy.errors import AlchemyError
from alchemy.predictor import Predictor
from alchemy.runner import run_task
from tests.logs import warned
from tests.tasks.texts import config
from tests.trained import KINDS, trained

ITEMS: dict[str, list[Any]] = {
    "relation": ["the <e1> rain </e1> made <e2> mud </e2>", "a <e1> cat </e1> and a <e2> dog </e2>"],
    "tagging": ["小明在北京", "我去"],
    "pairs": [("a fine day", "sun"), ("a sad rain", "fog")],
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[dict[str, Any]]]]:
    return {kind: trained(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


@pytest.fixture(scope="module")
def model(records: Any) -> Iterator[Predictor]:
    with alchemy.load(records["classes"][0], batch_size=3) as model:
        yield model


def same(one: Any, other: Any) -> None:
    """Check that predictions are equal up to the last bits."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    else:
        assert one == (pytest.approx(other, abs=1e-5) if isinstance(one, float) else other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_alone_says_what_its_training_said(kind: str, records: Any) -> None:
    record, said = records[kind]
    items = ITEMS.get(kind) or [row["text"] for row in said]
    with alchemy.load(record, batch_size=3) as model:
        found = model.predict(items)
    gold = {"tagging": "tags", "several": "labels"}.get(kind, "label")
    for answer, row in zip(found, said):
        same(answer, {name: value for name, value in row.items() if name != gold})
    assert len(found) == len(items)


@pytest.mark.parametrize("kind", ["relation", "tagging", "pairs"])
def test_fields_of_a_sample_are_a_question_too(kind: str, records: Any) -> None:
    record, said = records[kind]
    with alchemy.load(record) as model:
        task: Any = model.run.task
        for item, row in zip(ITEMS[kind], said):
            fields = {
                "pairs": {"text": item[0], "pair": item[1], "label": "unknown"},
                "tagging": {"tokens": list(item)},
            }
            sample = fields.get(kind) or task.question(item) | {"label": "unknown"}
            same(model.predict([sample])[0], model.predict([item])[0])
            assert model.predict([sample])[0]["pred"] == row["pred"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text("fine sad rn", min_size=1).filter(str.strip), min_size=1, max_size=9), st.integers(1, 9))
def test_answers_depend_neither_on_batches_nor_on_their_order(model: Predictor, texts: list[str], size: int) -> None:
    before, model.batch_size = model.batch_size, size
    try:
        together = model.predict(texts)
        alone = [answer for text in texts for answer in model.predict([text])]
    finally:
        model.batch_size = before
    assert [answer["text"] for answer in together] == texts
    for one, other in zip(together, alone, strict=True):
        same(one, other)


@pytest.mark.parametrize("kind", ["bert", "tagging", "relation", "pairs"])
def test_padding_changes_no_answer(kind: str, records: Any) -> None:
    long = {
        "tagging": "小明在北京我去",
        "relation": "a <e1> cat </e1> and a <e2> dog </e2> and rain",
        "bert": "rain " * 9,
    }
    items = [*ITEMS.get(kind, ["a fine day"]), long.get(kind, ("fine " * 9, "fog"))]
    found = {}
    for size in (1, 3):
        with alchemy.load(records[kind][0], batch_size=size) as model:
            found[size] = model.predict(items)
    for one, other in zip(found[1], found[3], strict=True):
        same(one, other)


def test_a_stream_is_read_no_further_than_its_window(model: Predictor) -> None:
    asked = itertools.count()
    stream = model.predict_stream((f"fine {next(asked)}" for _ in itertools.count()), window=4)
    assert [next(stream)["text"] for _ in range(5)] == [f"fine {number}" for number in range(5)]
    assert next(asked) == 8
    one = model.predict_stream(f"fine {number}" for number in itertools.count())
    assert next(one)["text"] == "fine 0"


@pytest.mark.parametrize(
    ("kind", "item", "message"),
    [
        ("classes", " ", r"items\[1\] the text is ' ', expected a non-empty string"),
        ("classes", 3, r"items\[1\] the text is 3, expected a non-empty string"),
        ("classes", ("a", "b"), r"items\[1\] invalid input .*, expected a text; or a dict with 'text'"),
        ("classes", {"texts": "a"}, r"items\[1\] missing field 'text'; did you mean 'texts'"),
        ("pairs", "a", r"items\[1\] invalid input 'a', expected 2 texts, as a tuple"),
        ("relation", "rain made <e2> mud </e2>", r"items\[1\] invalid text: missing marker <e1>.*mark the entities"),
        ("relation", {"tokens": ["a"]}, r"items\[1\] missing field 'text'; a sample needs text, tokens, e1, e2"),
        ("tagging", ["a", ""], r"items\[1\] the tokens are .* expected a list of non-empty words"),
        ("tagging", [], r"items\[1\] the tokens are \[\]"),
        ("bert", "fine " * 21, r"items\[1\]: a text has 21 tokens, more than max_length = 20"),
    ],
)
def test_what_is_no_question_is_told_by_its_number(kind: str, item: Any, message: str, records: Any) -> None:
    good = ITEMS.get(kind, ["a fine day"])[0]
    with alchemy.load(records[kind][0]) as model:
        stream = model.predict_stream([good, item, good])
        assert next(stream)["pred"]  # earlier rows have predictions
        with pytest.raises(AlchemyError, match=message):
            next(stream)


def test_a_text_beyond_the_limit_of_the_task_is_told_or_cut(records: Any) -> None:
    record = records["bert"][0]
    refused = pytest.raises(AlchemyError, match=r"items\[0\]: a text has 4 tokens, more than max_length = 3")
    with alchemy.load(record, overrides=["task.max_length=3"]) as model, refused:
        model.predict(["rain and sad fog"])
    with alchemy.load(record, overrides=["task.max_length=3", "task.long=only_first"]) as model:
        cut, short = model.predict(["rain and sad fog", "rain and sad"])
    assert cut["prob"] == pytest.approx(short["prob"])


def test_a_single_text_is_no_list(model: Predictor) -> None:
    with pytest.raises(AlchemyError, match=r"'rain' is a single input; pass a list"):
        model.predict("rain")


def test_words_are_split_as_the_task_says(records: Any) -> None:
    with alchemy.load(records["tagging"][0], overrides=["task.split=blanks"]) as model:
        assert model.predict(["小 明 在"])[0]["tokens"] == ["小", "明", "在"]
        assert model.predict(["小明 在"])[0]["tokens"] == ["小明", "在"]


def test_marks_are_read_with_the_indicators_of_the_training(tmp_path: Path) -> None:
    cfg = config(tmp_path, "relation")
    for split in cfg["task"]["datasets"].values():
        split["pipes"][0]["indicators"] = ["$", "#"]
    cfg["sched"]["epochs"] = 1
    result = run_task(cfg, raise_errors=True)
    (tmp_path / "data.txt").unlink()
    with alchemy.load(result.record_dir) as model:
        found = model.predict(ITEMS["relation"])
    assert found[0]["text"] == "the $ rain $ made # mud #"
    same(found[0]["prob"], result.ret["preds"][0]["prob"])


def test_word_vectors_are_not_read_again(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    (tmp_path / "vectors.txt").write_text(f"fine {'0.5 ' * 16}\n")
    cfg["model"]["encoder"]["vectors"] = str(tmp_path / "vectors.txt")
    cfg["sched"]["epochs"] = 1
    result = run_task(cfg, raise_errors=True)
    (tmp_path / "vectors.txt").unlink()
    with alchemy.load(result.record_dir) as model:
        same(model.predict(["a fine day"])[0]["prob"], result.ret["preds"][0]["prob"])


def lowered(text: str) -> str:
    return text.lower()


def labeled(sample: dict[str, Any]) -> dict[str, Any]:
    return sample | {"label": sample["label"]}


LOWER = {"type": "alchemy.pipeline.lst.Map", "fn": f"{__name__}.lowered", "field": "text"}
HELD = {"type": "alchemy.pipeline.lst.HoldOut", "share": 0.5}


def piped(root: Path, *pipes: dict[str, Any]) -> Path:
    """A record whose dev data pass through pipes after the processor."""
    cfg = config(root, "classes")
    dev = cfg["task"]["datasets"]["dev"]
    cfg["task"]["datasets"]["dev"] = {**dev, "pipes": [*dev["pipes"], *pipes]}
    cfg["sched"]["epochs"] = 1
    found: Path = run_task(cfg, raise_errors=True).record_dir
    return found


def test_questions_go_through_the_pipes_that_make_a_sample_of_one(tmp_path: Path) -> None:
    record = piped(tmp_path, HELD, LOWER)
    with warned() as lines, alchemy.load(record) as model:
        loud, quiet = model.predict(["A FINE DAY", "a fine day"])
        assert model.predict(["A SAD RAIN"])[0]["text"] == "a sad rain"
    same(loud, quiet)
    assert not [line for line in lines if "prediction skips" in line]


def test_pipes_that_questions_cannot_go_through_are_named(tmp_path: Path) -> None:
    stream = [LOWER | {"type": "alchemy.pipeline.itr.Map"}, {"type": "alchemy.pipeline.lst.ItrToLst"}]
    record = piped(tmp_path, HELD, *stream)
    with warned() as lines, alchemy.load(record) as model:
        assert model.predict(["A FINE DAY"])[0]["text"] == "A FINE DAY"
    (told,) = [line for line in lines if "prediction skips" in line]
    assert told.startswith("prediction skips alchemy.pipeline.itr.Map of [task.datasets.dev]: apply")


def test_a_function_that_fails_on_a_question_is_told_with_its_place(tmp_path: Path) -> None:
    record = piped(tmp_path, {"type": "alchemy.pipeline.lst.Map", "fn": f"{__name__}.labeled"})
    with (
        alchemy.load(record) as model,
        pytest.raises(AlchemyError, match=r"items\[0\] .*Map failed at .*: sample has no 'label'"),
    ):
        model.predict(["a fine day"])


def test_several_models_are_open_at_once_and_closed_in_any_order(records: Any) -> None:
    outside = sym_tbl()
    one, two = alchemy.load(records["classes"][0]), alchemy.load(records["tagging"][0])
    assert one.predict(["rain"])[0]["pred"] in ("good", "bad")
    one.close()
    one.close()
    assert two.predict(["我去"])[0]["tokens"] == ["我", "去"]
    two.close()
    with pytest.raises(AlchemyError, match="the predictor is closed"):
        one.predict(["rain"])
    assert sym_tbl() is outside


def test_threads_may_share_a_model(model: Predictor) -> None:
    found: list[Any] = [None] * 4

    def ask(number: int) -> None:
        found[number] = [row["text"] for row in model.predict([f"fine {number}"] * 20)]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[f"fine {number}"] * 20 for number in range(4)]


def test_loading_draws_nothing_and_leaves_no_run(records: Any) -> None:
    before = torch.random.get_rng_state()
    model = alchemy.load(records["classes"][0])
    del model  # never closed explicitly
    assert torch.equal(torch.random.get_rng_state(), before)
    assert sym_tbl().record_dir is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"checkpoint": "u7000"}, "has no checkpoint 'u7000'; choose one with"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"batch_size": 0}, "batch_size must be a positive integer, not 0"),
        ({"overrides": ["task.pear=true"]}, "has no option 'pear'; did you mean 'pair'"),
    ],
)
def test_what_cannot_be_loaded_is_told(change: dict[str, Any], message: str, records: Any) -> None:
    with pytest.raises(AlchemyError, match=message):
        alchemy.load(records["classes"][0], **change)
