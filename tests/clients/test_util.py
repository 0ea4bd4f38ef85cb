"""The small functions that existing projects import from `alchemy.util`."""

import json

import numpy as np
import pytest
import torch
from loguru import logger
from rich.console import Console
from rich.progress import Progress

from alchemy.config.tree import Table
from alchemy.util import (
    filter_optional_cfg,
    line_count,
    merge_max_position_constraints,
    new_huggingface_model,
    warn_unused_kwargs,
)
from alchemy.util.collate_fn import DefaultCollateFn
from alchemy.util.extention.rich import full_columns, no_total_columns
from alchemy.util.json import NpJsonEncoder


@pytest.fixture
def said():
    lines = []
    sink = logger.add(
        lambda message: lines.append(f"{message.record['level'].name} {message.record['message']}"), level=0
    )
    yield lines
    logger.remove(sink)


def test_filter_optional_cfg_tells_of_defaults(said):
    table = Table({"dropout": 0.1, "dim": 3})
    assert filter_optional_cfg(table, {"dropout", "layers"}) == {"dropout": 0.1}
    assert said == ["WARNING using the defaults of layers"]
    assert filter_optional_cfg({"x": 1}, {"x"}) == {"x": 1}
    filter_optional_cfg({}, ["a", "b"], level="DEBUG")
    assert said[1:] == ["DEBUG using the defaults of a, b"]


def test_warn_unused_kwargs_passes_over_the_type(said):
    warn_unused_kwargs({"type": "src.X"})
    warn_unused_kwargs({"type": "src.X", "perod": 1}, called_by="EvalPipe", level="INFO")
    assert said == ["INFO EvalPipe does not use perod"]


@pytest.mark.parametrize(("limits", "merged"), [((), None), ((None, None), None), ((512, None, 128), 128), ((0, 7), 0)])
def test_merge_max_position_constraints(limits, merged):
    assert merge_max_position_constraints(*limits) == merged


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\n\nb", 3)])
def test_line_count(tmp_path, text, lines):
    path = tmp_path / "a file"
    path.write_text(text)
    assert line_count(path) == line_count(str(path)) == lines


def test_json_of_numpy_and_torch():
    value = {"f1": np.float32(0.5), "n": np.int64(3), "ok": np.bool_(True), "a": np.eye(2), "t": torch.ones(2)}
    back = json.loads(json.dumps(value, cls=NpJsonEncoder))
    assert back == {"f1": 0.5, "n": 3, "ok": True, "a": [[1.0, 0.0], [0.0, 1.0]], "t": [1.0, 1.0]}
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"x": object()}, cls=NpJsonEncoder)


def test_columns_draw_a_bar_with_brackets_in_its_text():
    console = Console(record=True, width=100, force_terminal=True)
    for columns, total in ((full_columns(), 2), (no_total_columns(), None)):
        with Progress(*columns, console=console) as bar:
            bar.advance(bar.add_task("step [/x] {y}", total=total))
    assert console.export_text().count("step [/x] {y}") >= 2


def test_collate_pads():
    batch = DefaultCollateFn(type="x")([{"x": np.array([1, 2]), "id": "a"}, {"x": np.array([3]), "id": "b"}])
    assert batch["x"].tolist() == [[1, 2], [3, 0]]
    assert batch["id"] == ["a", "b"]


def test_new_huggingface_model_has_fresh_weights(tmp_path):
    small = {"model_type": "bert", "vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = new_huggingface_model({**small, "intermediate_size": 8})
    model.config.save_pretrained(tmp_path)
    for config in (model.config, str(tmp_path), tmp_path):
        assert new_huggingface_model(config).config.hidden_size == 8
