"""The trace of a model, its folded tree and its graph."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch
from torch import Tensor, nn

from alchemy.architecture.graph_svg import draw_graph
from alchemy.architecture.layers import Layer, build_layers, fold, limit_depth
from alchemy.architecture.module_graph import Graph, build_graph
from alchemy.architecture.module_trace import Trace, trace_modules


class Skip(nn.Module):
    """A U-Net in small: the output of the first layer is concatenated to that of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        self.up, self.unused = nn.Linear(2, 4), nn.Linear(1, 1)
        self.unused.weight.requires_grad = False

    def forward(self, x: Tensor) -> Tensor:
        first = self.down[0](x).relu()
        return torch.cat([first, self.up(self.down[1](first))], -1)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(self.norm(x))


def examined(module: nn.Module, *shape: int, depth: int | None = None) -> tuple[Trace, Layer, Graph]:
    x = torch.zeros(*shape)
    trace = trace_modules(module, lambda: module(x), {"x": x})
    layers = limit_depth(fold(build_layers("Net", module, trace), trace), depth)
    return trace, layers, build_graph(layers, trace)


def test_layers_have_shapes_parameters_and_flops() -> None:
    trace, root, _ = examined(Skip(), 3, 4)
    by_path = {layer.path: layer for _, layer in root.walk()}
    assert root.flops == 2 * 3 * (4 * 4 + 4 * 2 + 2 * 4) and (root.parameters, root.trainable) == (44, 43)
    assert by_path["down.1"].shapes == [[3, 2]] and by_path["down.1"].flops == 2 * 3 * 8 and root.shapes == [[3, 8]]
    assert by_path["down"].flops == 2 * 3 * (16 + 8) and not by_path["unused"].calls
    assert root.size == 4 * 44 and trace.joins == {"+0": "concat"}


def test_edges_follow_the_data_through_functions() -> None:
    _, _, graph = examined(Skip(), 3, 4)
    assert graph.edges == [("<x>", "down.0"), ("down.0", "down.1"), ("down.1", "up")]  # nothing reads the concatenation
    _, _, graph = examined(nn.Sequential(Skip(), nn.Linear(8, 1)), 3, 4)
    assert {("0.down.0", "0.+0"), ("0.up", "0.+0"), ("0.+0", "1")} <= set(graph.edges)


def test_repeated_blocks_are_folded() -> None:
    _, root, graph = examined(nn.Sequential(nn.Linear(4, 4), *(Block() for _ in range(12)), nn.Linear(4, 1)), 3, 4)
    (block,) = [layer for _, layer in root.walk() if layer.repeats == 12]
    assert (block.name + block.range, block.parameters) == ("1–12", 28)
    assert [node.path for node in graph.root.leaves()] == ["<x>", "0", "1.norm", "1.linear", "1.+0", "13"]
    assert {("0", "1.norm"), ("0", "1.+0"), ("1.linear", "1.+0"), ("1.+0", "13")} <= set(graph.edges)


@pytest.mark.parametrize(("depth", "paths"), [(1, ["<x>", "0", "1"]), (2, ["<x>", "0.norm", "0.linear", "1"])])
def test_the_depth_limits_the_layers(depth: int, paths: list[str]) -> None:
    _, _, graph = examined(nn.Sequential(Block(), nn.Linear(4, 4)), 3, 4, depth=depth)
    assert [node.path for node in graph.root.leaves()] == paths


def test_attention_and_recurrent_layers_count_their_matrix_products() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        _, root, _ = examined(layer, 1, 5, 8)
        _, lstm, _ = examined(nn.LSTM(3, 4, batch_first=True), 1, 5, 3)
    assert root.flops == 2 * 5 * (4 * 8 * 8 + 2 * 8 * 16) + 2 * 2 * 5 * 5 * 8
    assert lstm.flops == 2 * 5 * 16 * (3 + 4)


def test_hooks_and_settings_are_restored() -> None:
    module, onednn = Skip(), torch.backends.mkldnn.enabled
    examined(module, 3, 4)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    assert torch.backends.mkldnn.enabled == onednn


def test_the_drawing_is_inert_and_names_every_layer() -> None:
    _, _, graph = examined(nn.Sequential(Skip(), nn.Linear(8, 1)), 3, 4)
    text = draw_graph(graph, "</title><script>alert(1)</script>\x1b")
    root = ElementTree.fromstring(text)
    assert not root.findall(".//{*}script") and "\x1b" not in text
    assert {"down.0  Linear", "up  Linear", "concat", "x"} <= {each.text for each in root.findall(".//{*}text")}
    assert text == draw_graph(graph, "</title><script>alert(1)</script>\x1b")
    assert len(re.findall("marker-end", text)) == len(graph.edges)
