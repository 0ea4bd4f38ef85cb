"""The contract of sequence-to-sequence networks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from alchemy.errors import AlchemyError
from alchemy.nn.seq2seq import Network
from tests.nn.networks import EOS, NETWORKS, SIZE, Decoder, network, rows_of, transformer

SOURCES = [[3, 4, 5], [6, 2]]
TWICE = torch.tensor([[0, 0], [1, 1]])


@pytest.fixture(params=NETWORKS)
def net(request: pytest.FixtureRequest) -> Network:
    return network(3, request.param)


def before(rows: int, length: int) -> torch.Tensor:
    tokens = torch.randint(2, SIZE, (rows, length - 1), generator=torch.Generator().manual_seed(1))
    return torch.cat((torch.full((rows, 1), EOS), tokens), dim=1)


def near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-9 * other.abs().max().clamp_min(1))


@torch.no_grad()
def test_step_by_step_is_all_at_once(net: Network) -> None:
    before_NT = before(4, 41)  # more than the initial size of a cache
    steps = Decoder(net, SOURCES)
    steps.select(TWICE)
    found = torch.stack([steps.scores(before_NT[:, place]) for place in range(41)], dim=1)
    twice = rows_of([source for source in SOURCES for _ in range(2)])
    assert near(found, net(twice, before_NT))
    state = net.begin(net.encode(rows_of(SOURCES)))
    state.select(TWICE)
    parts = [net.decode(part, state) for part in before_NT.split([1, 5, 35], dim=1)]
    assert near(torch.cat(parts, dim=1), found)


@torch.no_grad()
def test_rows_that_are_chosen_go_on_as_if_they_had_always_stood_there(net: Network) -> None:
    before_NT = before(4, 6)
    before_NT[1::2, 0] = before_NT[::2, 0]
    steps = Decoder(net, SOURCES)
    steps.scores(before_NT[::2, 0])  # a sentence begins with one row
    steps.select(TWICE)
    for place in range(1, 3):
        steps.scores(before_NT[:, place])
    order = torch.tensor([1, 1, 3, 2])
    steps.select(order.view(2, 2))
    moved = torch.cat((before_NT[order, :3], before_NT[:, 3:]), dim=1)
    twice = rows_of([source for source in SOURCES for _ in range(2)])
    assert near(steps.scores(moved[:, 3]), net(twice, moved)[:, 3])
    steps.select(torch.tensor([[3, 2]]))  # the first sentence is finished
    left = torch.cat((moved[[3, 2], :4], before_NT[:2, 4:]), dim=1)
    assert near(steps.scores(left[:, 4]), net(rows_of([SOURCES[1]] * 2), left)[:, 4])


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 3])
def test_choosing_at_every_step_changes_nothing(net: Network, width: int) -> None:
    draw = torch.Generator().manual_seed(2)
    steps, written_NT = Decoder(net, SOURCES), torch.full((2, 1), EOS)
    steps.scores(written_NT[:, 0])
    for step in range(50):  # with a beam of 3, more tokens than the initial size
        rows = 1 if step == 0 else width
        parent_BR = torch.randint(rows, (2, width), generator=draw)
        rows_BR = torch.arange(2)[:, None] * rows + parent_BR
        steps.select(rows_BR)
        token_N1 = torch.randint(2, SIZE, (2 * width, 1), generator=draw)
        written_NT = torch.cat((written_NT[rows_BR.flatten()], token_N1), dim=1)
        found_NV = steps.scores(token_N1[:, 0])
    each = rows_of([source for source in SOURCES for _ in range(width)])
    assert near(found_NV, net(each, written_NT)[:, -1])


@torch.no_grad()
def test_tokens_that_no_hypothesis_has_are_forgotten() -> None:
    net = network(3)
    steps: Any = Decoder(net, SOURCES)
    steps.select(torch.tensor([[0] * 8, [1] * 8]))
    for _ in range(60):
        steps.scores(torch.full((16,), 3))
        steps.select(torch.tensor([[0] * 8, [8] * 8]))  # all continue from the first
    state: Any = steps.state
    assert state.family.length == 60 and state.past[0].keys.length <= 2 * 60 + 8 < 60 * 8


@torch.no_grad()
def test_padding_says_nothing(net: Network) -> None:
    before_BT = before(2, 5)
    plain = net(rows_of(SOURCES), before_BT)
    assert near(net(rows_of(SOURCES, extra=3), before_BT), plain)
    alone = torch.cat([net(rows_of([source]), before_BT[[place]]) for place, source in enumerate(SOURCES)])
    assert near(alone, plain)


@torch.no_grad()
def test_what_is_looked_at_adds_up_and_is_never_padding(net: Network) -> None:
    looks_BTS = net.attended(rows_of(SOURCES), before(2, 4))
    assert looks_BTS.shape == (2, 4, 3)
    assert torch.allclose(looks_BTS.sum(-1), torch.ones(2, 4).double()) and not looks_BTS[1, :, 2].any()


def test_every_weight_learns_and_no_token_sees_the_next(net: Network) -> None:
    before_BT = before(2, 5)
    scores_BTV = net.train()(rows_of(SOURCES), before_BT)
    scores_BTV.square().sum().backward()
    assert all(param.grad is not None and param.grad.abs().sum() > 0 for param in net.parameters())
    net.eval()
    changed = before_BT.clone()
    changed[:, 3] = (changed[:, 3] - 2 + 1) % (SIZE - 2) + 2
    with torch.no_grad():
        one, other = (net(rows_of(SOURCES), tokens) for tokens in (before_BT, changed))
    assert near(one[:, :3], other[:, :3]) and not near(one[:, 3:], other[:, 3:])


@pytest.mark.parametrize(("share", "tables"), [("all", 1), ("decoder", 2), ("none", 3)])
def test_tables_are_shared(share: str, tables: int) -> None:
    net = transformer(share=share)
    named = {id(part.weight) for part in (net.source_table, net.target_table, net.out)}  # type: ignore[union-attr]
    assert len(named) == tables


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(AlchemyError, match="not 7 \\(source\\) and 9 \\(target\\); build one vocabulary"):
        transformer(target_size=9)
    with pytest.raises(AlchemyError, match="dim = 8 is not a multiple of heads = 3"):
        transformer(heads=3)
    with pytest.raises(AlchemyError, match="a row has 9 tokens, but there are only 8 positions"):
        transformer(places="learned", max_positions=8)(rows_of([[3] * 9]), before(1, 2))
    with pytest.raises(
        AlchemyError, match=r"places must be one of 'sinusoidal', .*, not the string 'sinus'; did you mean 'sinusoidal'"
    ):
        transformer(places="sinus")
    with pytest.raises(AlchemyError, match="decoder_layers must be at least 1, not 0"):
        transformer(decoder_layers=0)
    with pytest.raises(AlchemyError, match="rotary positions need an even number of features per head, not 1"):
        transformer(places="rotary", heads=8)
