"""CTranslate2 yields the output and scores of alchemy's search; unsupported options are rejected by name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.export.ctranslate2 import pad_rows
from alchemy.export.ctranslate2_engine import Engine, token_names
from alchemy.export.ctranslate2_spec import PLACES, build_spec, require_transformer
from alchemy.generate import BeamSearch, Hypothesis, Limits, Sampling, Special, TextGenerator
from alchemy.nn.lstm import AttentionLSTM
from alchemy.nn.transformer import Transformer
from tests.export.copying import EOS, SIZE, SPECIAL, network, sentences

pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")

SHAPES = [
    {"norm_first": norm_first, "places": places, "share": share, "activation": activation}
    for norm_first in (False, True)
    for places in ("sinusoidal", "learned")
    for share in ("all", "none")
    for activation in ("relu", "gelu", "swiglu")
]
SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 5, "nbest": 5},
    {"beam": 5, "nbest": 2, "length_penalty": 0.0},
    {"beam": 4, "nbest": 4, "length_penalty": 0.6},
    {"beam": 3, "nbest": 3, "length_penalty": -0.5},
]


def title(shape: Any) -> str:
    return " ".join(f"{value}" for value in shape.values())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def engine(
    folder: Path,
    net: Transformer,
    search: BeamSearch | Sampling,
    precision: str = "float32",
    special: Special = SPECIAL,
    rescore: bool = False,
    **limits: Any,
) -> Engine:
    spec = build_spec(net, special)
    spec.validate()
    spec.optimize(quantization=precision)
    spec.save(str(folder))
    return Engine(folder, net, TextGenerator(search, special, Limits(**limits)), precision, rescore=rescore)


def same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert [text.tokens for text in one] == [text.tokens for text in other]
        assert [text.score for text in one] == pytest.approx([text.score for text in other], abs=1e-4)


def rated(ours: list[Hypothesis], theirs: list[Hypothesis]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.tokens == other.tokens and one.score == pytest.approx(other.score, abs=1e-4)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-3)


@pytest.mark.parametrize("shape", SHAPES, ids=title)
def test_texts_and_scores_are_those_of_our_own_search(shape: dict[str, Any], folder: Path) -> None:
    net, rows = network(**shape, max_positions=64), pad_rows(sentences(12))
    for search in SEARCHES:
        made = engine(folder, net, BeamSearch(**search))
        found, own = made.translate(rows), made.generate(rows)
        decided = [place for place, texts in enumerate(found) if texts]
        assert len(decided) > 8
        same([own[place] for place in decided], [found[place][: made.search.nbest] for place in decided])
        same(own, made(rows))
        best = [texts[0] for texts in own]
        rated(best, made.score(token_names(rows), best))


LIMITS = [{"max_length": 3}, {"min_length": 4}, {"min_ratio": 0.8}, {"max_ratio": 0.5, "max_extra": 1, "min_length": 1}]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_limits_are_those_of_each_sentence(limits: dict[str, Any], folder: Path) -> None:
    net, rows = network(), pad_rows(sentences(12))
    made = engine(folder, net, BeamSearch(beam=4, nbest=2), **limits)
    assert not all(made.translate(rows))  # some are left to our own search
    same(made.generate(rows), made(rows))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    sources=st.lists(st.lists(st.integers(4, SIZE - 1), max_size=9), min_size=1, max_size=6),
    beam=st.integers(1, 6),
    penalty=st.sampled_from([0.0, 0.6, 1.0]),
    most=st.integers(1, 12),
    least=st.integers(0, 3),
    rescore=st.booleans(),
)
def test_whatever_is_asked_is_answered_as_by_our_own_search(
    sources: list[list[int]], beam: int, penalty: float, most: int, least: int, rescore: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        search = BeamSearch(beam=beam, nbest=beam, length_penalty=penalty)
        limits: dict[str, Any] = {"max_length": max(most, least), "min_length": least}
        made = engine(Path(folder), network(steps=80), search, rescore=rescore, **limits)
        rows = pad_rows([[*source, EOS] for source in sources])
        same(made.generate(rows), made(rows))


def test_an_untrained_network_that_never_ends_is_left_to_our_own_search(folder: Path) -> None:
    net, rows = network(steps=0), pad_rows(sentences(4))
    made = engine(folder, net, BeamSearch(beam=3))
    assert not any(made.translate(rows))
    same(made.generate(rows), made(rows))
    best = [texts[0] for texts in made(rows)]
    rated(best, made.score(token_names(rows), best))


def test_padding_is_never_written(folder: Path) -> None:
    net, rows = network(share="none"), pad_rows(sentences(12))
    special = SPECIAL._replace(pad=7)  # a token that it often generates
    found = engine(folder, net, BeamSearch(beam=4, nbest=4), special=special)(rows)
    assert any(7 in row for row in rows.ids_BT.tolist())
    assert not any(7 in text.tokens for texts in found for text in texts)


def test_scores_that_are_told_count_the_share_of_padding(folder: Path) -> None:
    net, rows = network(steps=80), pad_rows(sentences(12))
    made = engine(folder, net, BeamSearch(beam=4, nbest=4), special=SPECIAL._replace(pad=0), rescore=True)
    assert sum(map(bool, made.translate(rows))) > 8
    own, found = made.generate(rows), made(rows)
    same(own, found)
    rated([text for texts in own for text in texts], [text for texts in found for text in texts])


def test_rows_longer_than_the_places_that_are_written_out(folder: Path) -> None:
    long = [*[4] * PLACES, EOS]
    made = engine(folder, network(steps=80), BeamSearch(beam=2), max_length=9)
    rows = pad_rows([long, [5, EOS]])
    assert [bool(texts) for texts in made.translate(rows)] == [False, True]
    same(made.generate(rows), made(rows))


def test_learned_places_end_a_text(folder: Path) -> None:
    net = network(places="learned", max_positions=9)
    made = engine(folder, net, BeamSearch(beam=3, nbest=3), max_ratio=3.0)
    rows = pad_rows(sentences(12))
    same(made.generate(rows), made(rows))


def test_int8_is_about_the_same(folder: Path) -> None:
    net, rows = network(steps=80), pad_rows(sentences(12))
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    made = engine(folder, net, BeamSearch(beam=3), precision="int8")
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    own, found = made.generate(rows), made(rows)
    assert sum(one[0].tokens == other[0].tokens for one, other in zip(own, found)) > 8
    assert [texts[0].score for texts in found] == pytest.approx([texts[0].score for texts in own], abs=0.5)


def test_a_model_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match=r"CTranslate2 cannot use int8 on this machine: .*--engine torch"):
        Engine(tmp_path / "none", network(), TextGenerator(BeamSearch(), SPECIAL, Limits()), "int8")


REFUSED: list[tuple[str, BeamSearch | Sampling, dict[str, Any]]] = [
    ("does not support the search Sampling", Sampling(), {}),
    ("does not support `exact`", BeamSearch(exact=True), {}),
    ("does not support `groups`", BeamSearch(beam=4, groups=2), {}),
    ("does not support `unk_penalty`", BeamSearch(), {"unk_penalty": 1.0}),
    ("does not support `no_repeat`.*--engine torch", BeamSearch(), {"no_repeat": 2}),
    (f"beam = {SIZE} with a vocabulary of {SIZE} tokens", BeamSearch(beam=SIZE), {}),
]


@pytest.mark.parametrize(("message", "search", "limits"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_it_does_not_know_is_refused(message: str, search: Any, limits: dict[str, Any], folder: Path) -> None:
    with pytest.raises(AlchemyError, match=message):
        engine(folder, network(), search, **limits)


def test_what_it_cannot_hold_is_refused() -> None:
    sizes: dict[str, Any] = {"source_size": SIZE, "target_size": SIZE, "dim": 16}
    with pytest.raises(AlchemyError, match=r"does not support the network AttentionLSTM.*--engine torch"):
        require_transformer(AttentionLSTM(**sizes, hidden=16))
    with pytest.raises(AlchemyError, match='does not support a Transformer with places = "rotary"'):
        require_transformer(Transformer(**sizes, heads=2, inner=32, places="rotary"))
