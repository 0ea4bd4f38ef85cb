"""Captured values: attention with tokens, outputs of modules, and training that does not notice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.capture import AttentionMap, Capture, find_modules, label_axes
from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError
from alchemy.nn.attention import CrossAttention, SelfAttention
from alchemy.nn.kv_cache import KeyValues
from alchemy.nn.record_attention import AttentionRecorder
from alchemy.records.read_media import read_media
from alchemy.runner import run_task
from tests import toy
from tests.models import tiny
from tests.ready import ready
from tests.tasks.texts import config

ENCODER = {"type": "alchemy.models.encoders.Transformer", "dim": 8, "heads": 2, "layers": 2, "inner": 16}
ATTENTION = ["encoder.layers.layers.*.self_attn"]


def captured(root: Path, kind: str = "classes", **capture: Any) -> dict[str, Any]:
    cfg = config(root, kind)
    cfg["model"]["encoder"] = ENCODER
    cfg["sched"]["epochs"] = 2
    cfg["task"]["datasets"]["dev"] = {**cfg["task"]["datasets"]["train"], "shuffle": False}
    return cfg | ({"capture": {"modules": ATTENTION, "every": 3, "examples": 2, **capture}} if capture else {})


def media_of(cfg: dict[str, Any]) -> tuple[Path, list[dict[str, Any]]]:
    record = run_task(cfg, raise_errors=True).record_dir
    assert record is not None
    return record, [row for row in read_media(record) if row["name"].startswith("capture/")]


def test_attention_maps_have_the_tokens_of_the_examples(tmp_path: Path) -> None:
    record, rows = media_of(captured(tmp_path, modules=[*ATTENTION, "out"]))
    maps = [row for row in rows if row["kind"] == "attention"]
    assert sorted({row["update"] for row in rows}) == [3, 6, 8]  # 8: the end of training
    assert len(maps) == 3 * 2 * 2 and maps[0]["name"] == "capture/encoder.layers.layers.0.self_attn/1"
    found = json.loads((record / maps[0]["file"]).read_text())
    assert found["rows"] == found["columns"] == ["a", "fine", "day"]
    assert maps[0]["info"]["example"] == "dev[0]: a fine day"
    assert torch.tensor(found["weights"]).sum(-1).allclose(torch.ones(2, 3), atol=1e-3)
    kinds = {row["kind"] for row in rows if row["name"] == "capture/out"}
    assert kinds == {"histogram", "table"}  # a vector per example


def test_training_is_bit_identical_with_and_without_capture(tmp_path: Path) -> None:
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    plain = captured(tmp_path / "without") | {"ema": {"decay": 0.5}}
    watched = captured(tmp_path / "with", modules=["*"], every=3) | {"ema": {"decay": 0.5}}
    for cfg in (plain, watched):
        cfg["model"]["dropout"] = 0.3
        cfg["model"]["encoder"] = ENCODER | {"dropout": 0.2}
    weights: list[bytes] = []
    curves: list[Any] = []
    for cfg in (plain, watched):
        record = run_task(cfg, raise_errors=True).record_dir
        assert record is not None
        weights.append((record / "state" / "last" / "model.safetensors").read_bytes())
        lines = [json.loads(line) for line in (record / "metrics.jsonl").read_text().splitlines()]
        values = [line.get("values", {}) for line in lines]
        curves.append([{k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in values])
    assert weights[0] == weights[1] and curves[0] == curves[1]


def test_a_compiled_model_is_captured_as_it_is(tmp_path: Path) -> None:
    for name in ("compiled", "plain"):
        (tmp_path / name).mkdir()
    compiled = captured(tmp_path / "compiled", modules=[*ATTENTION, "out"]) | {
        "precision": {"compile": {"backend": "eager"}}
    }
    names = [
        [(row["kind"], row["name"], row["update"]) for row in media_of(cfg)[1]]
        for cfg in (compiled, captured(tmp_path / "plain", modules=[*ATTENTION, "out"]))
    ]
    assert names[0] == names[1] and len(names[0]) > 0


def test_a_model_with_sparse_outputs_counters_and_rare_modules(tmp_path: Path) -> None:
    weights = []
    for name, capture in (("plain", {}), ("watched", {"capture": {"modules": ["*"], "examples": 2, "every": 3}})):
        result = run_task(
            toy.config(tmp_path / name, model__type="tests.media.odd_model.Odd") | capture, raise_errors=True
        )
        record = result.record_dir
        weights.append((record / "state" / "last" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] and "[capture] failed" not in (record / "run.log").read_text()
    tables = [row for row in read_media(record) if (row["kind"], row["name"]) == ("table", "capture/sparse")]
    rows = json.loads((record / tables[0]["file"]).read_text())["rows"]
    assert [row[0] for row in rows] == ["dev[1]"]  # the first example does not reach it


def test_nothing_is_hooked_between_captures(tmp_path: Path) -> None:
    with ready(captured(tmp_path)) as run:
        capture = Capture(modules=["*"])
        state = torch.get_rng_state()
        capture._run_example(capture.examples[0].batch)
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in run.model.module.modules())
        assert torch.equal(torch.get_rng_state(), state)


def test_a_file_of_examples(tmp_path: Path) -> None:
    (tmp_path / "probe.jsonl").write_text('{"text": "a sad unknown"}\n')
    cfg = captured(tmp_path, examples=str(tmp_path / "probe.jsonl"), every=100)
    record, rows = media_of(cfg)
    assert len(rows) == 2  # two layers, at the end of training
    assert json.loads((record / rows[0]["file"]).read_text())["rows"] == ["a", "sad", "<unk>"]


def test_a_failure_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alchemy.task.AlchemyTask.probe", lambda self, batch: 1 / 0)
    _, rows = media_of(captured(tmp_path, every=1))
    assert rows == []


@pytest.mark.parametrize(
    ("capture", "message"),
    [
        ({"modules": ["encoder.*.attn"]}, r"(?s)no module matches 'encoder\.\*\.attn'.*encoder"),
        ({"modules": ["out"], "examples": "no.jsonl"}, "no.jsonl"),
    ],
)
def test_wrong_tables_are_errors_before_the_first_step(tmp_path: Path, capture: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        run_task(captured(tmp_path, **capture), raise_errors=True)


@pytest.mark.parametrize(
    ("capture", "message"),
    [
        ({"every": 0}, "every"),
        ({"modules": []}, "modules"),
        ({"layers": ["a"]}, "layers"),
        ({"examples": -1}, "examples"),
        ({"examples": "missing.jsonl"}, "file not found: 'missing.jsonl'"),
    ],
)
def test_check_finds_wrong_values(tmp_path: Path, capture: dict[str, Any], message: str) -> None:
    found = check(prepare_cfg(captured(tmp_path, **capture)))
    assert any(problem.section == "capture" and message in str(problem) for problem in found)


class Annotated(nn.Module):
    """Attention as in the annotated Transformer."""

    def forward(self, x: Tensor) -> Tensor:
        self.p_attn = F.softmax(x @ x.mT, dim=-1)
        return self.p_attn @ x


def test_the_weights_are_those_of_the_layer() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 5, 8)
    seen: list[Tensor] = []
    multi, own = nn.MultiheadAttention(8, 2, batch_first=True).eval(), Annotated()
    expected = multi(x, x, x, average_attn_weights=False)[1]
    with torch.no_grad(), AttentionRecorder(seen.append):
        assert multi(x, x, x, need_weights=False)[1] is None
        own(x)
        for length in (5, 20):  # short rows do not use the fused kernel
            SelfAttention(8, 2)(torch.randn(1, length, 8))
        cross = CrossAttention(8, 2)
        cross(x, KeyValues(*cross.project(torch.randn(1, 3, 8))), torch.tensor([[[[True, True, False]]]]))
    assert torch.allclose(seen[0], expected, atol=1e-6) and torch.equal(seen[1], own.p_attn)
    assert [tuple(weights.shape) for weights in seen[2:]] == [(1, 2, 5, 5), (1, 2, 20, 20), (1, 2, 5, 3)]
    assert all(torch.allclose(weights.sum(-1), torch.ones(())) for weights in seen)
    assert not seen[3].triu(1).any() and not seen[4][..., 2].any()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_transformers_models(implementation: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    folder = tiny.folder(tmp_path, "bert")
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation=implementation).eval()
    seen: list[Tensor] = []
    ids = torch.tensor([[1, 2, 3, 4]])
    with torch.no_grad(), AttentionRecorder(seen.append):
        model(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 0]]))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 0]]), output_attentions=True).attentions
    assert len(seen) == len(expected) and all(torch.allclose(*pair, atol=1e-5) for pair in zip(seen, expected))


def test_the_axes_of_a_translation() -> None:
    tokens = {"source": ["a", "b"], "target": ["x", "y"]}
    full = AttentionMap(torch.full((1, 2, 2), 0.5), 2, 2)
    causal = AttentionMap(torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]), 2, 2)
    assert label_axes(tokens, full, "encoder.0.attend") == (["a", "b"], ["a", "b"])
    assert label_axes(tokens, full, "decoder.0.look") == (["x", "y"], ["a", "b"])
    assert label_axes(tokens, causal, "decoder.0.attend") == (["x", "y"], ["<begin>", "x"])
    assert label_axes({}, full, "blocks.0") == (["0", "1"], ["0", "1"])


def test_long_maps_are_cut(tmp_path: Path) -> None:
    (tmp_path / "probe.jsonl").write_text(json.dumps({"text": "fine " * 150}) + "\n")
    record, rows = media_of(captured(tmp_path, examples=str(tmp_path / "probe.jsonl")))
    found = json.loads((record / rows[0]["file"]).read_text())
    assert len(found["weights"][0]) == len(found["rows"]) == 128 and found["rows"][0] == "fine"


def test_patterns_find_modules() -> None:
    net = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1)))
    assert list(find_modules(net, ["*.0", "0"])) == ["0", "1.0"]
    with pytest.raises(AlchemyError, match=r"(?s)no module matches '2'.*similar names: 0, 1"):
        find_modules(net, ["2"])
