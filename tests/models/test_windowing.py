"""Long rows in windows: each token is used once, with as much context as possible, and padding has no effect."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.models.encoders import Embedding, Encoder, Recurrent
from alchemy.models.windowing import InWindows
from alchemy.nn.sequences import Rows, in_front
from tests.models.tiny import padded, ragged, words

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=4)


def reader(size: int, overlap: int, around: tuple[int, int] = (1, 2)) -> InWindows:
    return InWindows(size=size, overlap=overlap, around=around)


def recurrent(reading: InWindows) -> Encoder:
    torch.manual_seed(1)
    encoder = Recurrent(words(), dim=8, hidden=6).eval()
    encoder.reading = reading
    return encoder


@given(length=st.integers(1, 60), size=st.integers(4, 12), overlap=st.integers(0, 8))
def test_every_place_counts_once(length: int, size: int, overlap: int) -> None:
    assume(overlap < size - 3)
    counts = torch.zeros(length)
    for place_W, share_W in reader(size, overlap).windows(length):
        assert len(place_W) <= size
        counts.index_add_(0, place_W, share_W)
    assert torch.allclose(counts, torch.ones(length))


@settings(max_examples=30, deadline=None)
@given(lengths=LENGTHS, extra=st.integers(0, 9), left=st.booleans(), overlap=st.integers(0, 4))
def test_padding_and_other_rows_change_nothing(lengths: list[int], extra: int, left: bool, overlap: int) -> None:
    encoder, texts = recurrent(reader(8, overlap)), ragged(lengths)
    with torch.no_grad():
        front, _ = in_front(padded(texts, extra, left))
        together = encoder.read(front)
        alone = [encoder.read(padded([text])) for text in texts]
    assert torch.allclose(
        together.states_BTD[front.real_BT], torch.cat([one.states_BTD[0] for one in alone]), atol=1e-6
    )
    assert torch.allclose(together.pooled_BD, torch.cat([one.pooled_BD for one in alone]), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(lengths=LENGTHS, overlap=st.integers(0, 4))
def test_vectors_that_see_nothing_around_them_are_those_of_the_whole(lengths: list[int], overlap: int) -> None:
    encoder, rows = Embedding(words(), dim=8).eval(), padded(ragged(lengths))
    whole = encoder.read(rows).states_BTD
    encoder.reading = reader(8, overlap)
    assert torch.allclose(encoder.read(rows).states_BTD, whole)


def test_a_token_is_given_what_its_window_says_and_a_special_one_the_mean() -> None:
    text = ragged([14])[0]
    encoder = recurrent(reader(8, 2, around=(1, 1)))
    with torch.no_grad():
        found = encoder.read(padded([text]))
        # the text has 12 tokens between two special ones, a window has 6 of them
        parts = [torch.cat([text[:1], text[1 + start : 7 + start], text[-1:]]) for start in (0, 4, 6)]
        first, middle, last = (encoder(padded([part])) for part in parts)
    assert torch.allclose(found.states_BTD[0, 1:6], first.states_BTD[0, 1:6], atol=1e-6)
    assert torch.allclose(found.states_BTD[0, 6:9], middle.states_BTD[0, 2:5], atol=1e-6)
    assert torch.allclose(found.states_BTD[0, 9:13], last.states_BTD[0, 3:7], atol=1e-6)
    ends = (first.states_BTD[0, [0, -1]] + middle.states_BTD[0, [0, -1]] + last.states_BTD[0, [0, -1]]) / 3
    assert torch.allclose(found.states_BTD[0, [0, -1]], ends, atol=1e-6)
    assert torch.allclose(found.pooled_BD, (first.pooled_BD + middle.pooled_BD + last.pooled_BD) / 3, atol=1e-6)


def test_segments_go_along() -> None:
    seen: list[Rows] = []

    class Spy(Embedding):
        def forward(self, rows: Rows):
            seen.append(rows)
            return super().forward(rows)

    rows = padded(ragged([12]))._replace(segments_BT=torch.arange(12)[None])
    encoder = Spy(words(), dim=8)
    encoder.reading = reader(8, 0)
    encoder.read(rows)
    assert seen[0].segments_BT is not None
    assert torch.equal(rows.ids_BT[0][seen[0].segments_BT[seen[0].real_BT]], seen[0].ids_BT[seen[0].real_BT])


def test_windows_must_fit() -> None:
    assert reader(8, 2).longest(8) is None and reader(8, 2).longest(None) is None
    with pytest.raises(
        AlchemyError, match="windows have max_length = 8 tokens, but the model takes at most 7; set max_length"
    ):
        reader(8, 2).longest(7)
    with pytest.raises(
        AlchemyError, match="room for 5 tokens of text: with overlap = 5, a window adds no new tokens; increase"
    ):
        reader(8, 5)
