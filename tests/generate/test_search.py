"""Searches: results do not depend on the batch, and equal those of an exhaustive search."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from alchemy.errors import AlchemyError
from alchemy.generate import BeamSearch, Ensemble, Hypothesis, Limits, Sampling, TextGenerator
from alchemy.generate.beam_search import BLOCK, best_places
from alchemy.generate.search import Special
from alchemy.generate.token_rules import AtLeast, AtMost, NoRepeat, Penalty, Prefixes, Rule, Without
from alchemy.nn.seq2seq import Network
from tests.nn.networks import EOS, NETWORKS, PAD, SIZE, UNK, Decoder, network, rows_of

SPECIAL = Special(begin=EOS, eos=EOS, pad=PAD, unk=UNK)


def rules(most: list[int], *more: Rule) -> list[Rule]:
    return [Without(torch.tensor([PAD])), *more, AtMost(torch.tensor(most), EOS)]


@torch.no_grad()
def searched(
    net: Network, sources: list[list[int]], how: Any, *more: Rule, most: int = 6, extra: int = 0
) -> list[list[Hypothesis]]:
    lengths = [most] * len(sources)
    return how(Decoder(net, sources, extra), torch.tensor(lengths), SPECIAL, rules(lengths, *more))


@torch.no_grad()
def all_texts(net: Network, source: list[int], most: int, penalty: float) -> list[tuple[float, list[int]]]:
    """Return every possible output with its score, best first."""
    found = []
    for length in range(most + 1):
        for text in itertools.product(range(1 + EOS, SIZE), repeat=length):
            before = torch.tensor([[EOS, *text]])
            logs = net(rows_of([source]), before).log_softmax(-1)[0]
            total = sum(float(logs[place, token]) for place, token in enumerate([*text, EOS]))
            found.append((total / (length + 1) ** penalty, [*text, EOS]))
    return sorted(found, reverse=True)


def same(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> None:
    for texts, others in zip(one, other, strict=True):
        assert [text.tokens for text in texts] == [text.tokens for text in others]
        assert [text.score for text in texts] == pytest.approx([text.score for text in others], abs=1e-5)


SOURCES = st.lists(st.lists(st.integers(2, SIZE - 1), min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(list(NETWORKS)),
    sources=SOURCES,
    seed=st.integers(0, 20),
    groups=st.sampled_from([1, 2]),
    extra=st.integers(0, 3),
    data=st.data(),
)
def test_a_beam_search_does_not_depend_on_the_batch(
    kind: str, sources: list[list[int]], seed: int, groups: int, extra: int, data: st.DataObject
) -> None:
    net, how = network(seed, kind), BeamSearch(beam=4, nbest=3, groups=groups)
    together = searched(net, sources, how, extra=extra)
    same(together, [searched(net, [source], how)[0] for source in sources])
    order = data.draw(st.permutations(range(len(sources))))
    again = searched(net, [sources[place] for place in order], how)
    same([together[place] for place in order], again)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_finds_what_trying_everything_finds(seed: int, penalty: float) -> None:
    net, source = network(seed), [3, 5, 2]
    how = BeamSearch(beam=125, nbest=5, length_penalty=penalty, exact=True)
    (found,) = searched(net, [source], how, most=3)
    want = all_texts(net, source, 3, penalty)[:5]
    assert [text.tokens for text in found] == [text for _, text in want]
    assert [text.score for text in found] == pytest.approx([score for score, _ in want], abs=1e-5)


@settings(max_examples=15, deadline=None)
@given(sources=SOURCES, seed=st.integers(0, 20))
def test_a_beam_of_one_is_greedy(sources: list[list[int]], seed: int) -> None:
    net = network(seed)
    same(searched(net, sources, BeamSearch(beam=1)), searched(net, sources, Sampling(temperature=0)))


@settings(max_examples=15, deadline=None)
@given(sources=SOURCES, seed=st.integers(0, 20))
def test_exact_is_never_worse(sources: list[list[int]], seed: int) -> None:
    net = network(seed)
    usual, exact = (searched(net, sources, BeamSearch(beam=3, exact=exact)) for exact in (False, True))
    assert all(one[0].score <= other[0].score + 1e-6 for one, other in zip(usual, exact))


def test_the_scores_of_tokens_add_up() -> None:
    (texts,) = searched(network(1), [[3, 4, 5]], BeamSearch(beam=3, nbest=3, length_penalty=0.0))
    assert all(sum(text.token_scores) == pytest.approx(text.score, abs=1e-5) for text in texts)
    assert all(len(text.token_scores) == len(text.tokens) and text.tokens[-1] == EOS for text in texts)


def test_an_ensemble_of_one_is_that_one_and_of_two_the_mean() -> None:
    one, other, sources = network(1), network(2), [[3, 4], [5]]
    how, most = BeamSearch(beam=3, nbest=2), torch.tensor([6, 6])

    def together(*nets: Network) -> list[list[Hypothesis]]:
        with torch.no_grad():
            return how(Ensemble([Decoder(net, sources) for net in nets]), most, SPECIAL, rules([6, 6]))

    same(together(one), searched(one, sources, how))
    same(together(one, one, one), searched(one, sources, how))
    with torch.no_grad():
        last = torch.full((2,), EOS)
        mean = Ensemble([Decoder(net, sources) for net in (one, other)]).scores(last).exp()
        each = [Decoder(net, sources).scores(last).softmax(-1) for net in (one, other)]
    assert torch.allclose(mean, (each[0] + each[1]) / 2, atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    sources=SOURCES,
    seed=st.integers(0, 20),
    size=st.integers(1, 3),
    prefix=st.lists(st.integers(2, SIZE - 1), min_size=1, max_size=3),
    least=st.integers(0, 5),
)
def test_rules_hold(sources: list[list[int]], seed: int, size: int, prefix: list[int], least: int) -> None:
    net, count = network(seed), len(sources)
    repeat, many = NoRepeat(size), AtLeast(torch.full((count,), least), EOS)
    for texts in searched(net, sources, BeamSearch(beam=3, nbest=3), repeat, many, most=5):
        assert texts
        for text in texts:
            runs = list(zip(*(text.tokens[:-1][k:] for k in range(size))))
            assert len(runs) == len(set(runs))
            stuck = size == 1 and len(text.tokens) - 1 == SIZE - 2  # all tokens except PAD and EOS
            assert least <= len(text.tokens) - 1 <= 5 or stuck
            assert PAD not in text.tokens
    begun = Prefixes(torch.tensor([prefix] * count), torch.full((count,), len(prefix)), rules([6] * count, repeat))
    with torch.no_grad():
        found = BeamSearch(beam=3)(Decoder(net, sources), torch.full((count,), 6), SPECIAL, [begun])
    assert all(texts[0].tokens[: len(prefix)] == prefix for texts in found)


def test_texts_that_outgrow_every_room_score_what_the_network_says_of_them() -> None:
    net, sources = network(9, "pre-norm"), [[3, 4], [5, 6, 2], [2]]
    long = AtLeast(torch.tensor([70, 40, 50]), EOS)
    found = searched(net, sources, BeamSearch(beam=3, nbest=2, groups=1), long, most=75)
    for source, texts in zip(sources, found):
        assert len(texts) == 2 and all(len(text.tokens) > 40 for text in texts)
        for text in texts:
            with torch.no_grad():
                logs_TV = net(rows_of([source]), torch.tensor([[EOS, *text.tokens[:-1]]]))[0].log_softmax(-1)
            want = logs_TV.gather(1, torch.tensor(text.tokens)[:, None])[:, 0]
            assert text.token_scores == pytest.approx(want.tolist(), abs=1e-3)


def test_scores_that_are_not_numbers_are_told() -> None:
    net = network(1)
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    for how in (BeamSearch(beam=2), BeamSearch(beam=2, exact=True), Sampling()):
        with pytest.raises(AlchemyError, match="returns NaN scores; has training diverged"):
            searched(net, [[3, 4]], how)


def test_sentences_have_limits_of_their_own() -> None:
    net, sources, most = network(4), [[3, 4], [3, 4], [5]], [1, 6, 3]
    with torch.no_grad():
        found = BeamSearch(beam=3, nbest=3)(Decoder(net, sources), torch.tensor(most), SPECIAL, rules(most))
    alone = [searched(net, [source], BeamSearch(beam=3, nbest=3), most=m)[0] for source, m in zip(sources, most)]
    same(found, alone)


def test_an_unknown_word_costs() -> None:
    net, sources = network(5), [[3, 4], [5, 6, 2]]
    dear = searched(net, sources, BeamSearch(beam=3), Penalty(UNK, 1e4))
    assert all(UNK not in texts[0].tokens for texts in dear)


def test_groups_differ_more_than_a_beam() -> None:
    net, sources = network(6), [[3, 4], [5, 6, 2], [2, 2]]
    plain = searched(net, sources, BeamSearch(beam=4, nbest=4))
    charged = searched(net, sources, BeamSearch(beam=4, nbest=4, groups=4, diversity=5.0))

    def first_tokens(found: list[list[Hypothesis]]) -> int:
        return sum(len({text.tokens[0] for text in texts}) for texts in found)

    assert first_tokens(charged) > first_tokens(plain)
    assert first_tokens(charged) == 12


@pytest.mark.parametrize(
    "how",
    [
        Sampling(nbest=3),
        Sampling(nbest=2, top_k=3),
        Sampling(nbest=2, top_p=0.7, temperature=0.8),
        Sampling(nbest=3, typical=0.6),
    ],
)
def test_what_is_drawn_depends_on_seed_and_number_alone(how: Sampling) -> None:
    net, sources = network(7), [[3, 4], [5, 6, 2], [2, 2]]
    together = searched(net, sources, how)
    with torch.no_grad():
        alone = [
            how(Decoder(net, [source]), torch.tensor([6]), SPECIAL, rules([6]), numbers=[number])[0]
            for number, source in enumerate(sources)
        ]
    same(together, alone)
    other = Sampling(**{**vars(how), "seed": 2})
    assert [text.tokens for texts in searched(net, sources, other) for text in texts] != [
        text.tokens for texts in together for text in texts
    ]


def test_draws_follow_the_probabilities_of_what_is_left_in() -> None:
    scores = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]))

    def left(**options: Any) -> list[int]:
        return torch.isfinite(Sampling(**options).filter_scores(scores))[0].nonzero()[:, 0].tolist()

    assert left(top_k=2) == [0, 1] and left(top_p=0.6) == [0, 1] and left(top_p=0.5) == [0]
    assert left(typical=0.3) == [1]  # the entropy is 1.14, and -log 0.3 is 1.2
    assert left() == [0, 1, 2, 3]

    class Fixed:
        def scores(self, last_N: Tensor) -> Tensor:
            return scores.expand(len(last_N), -1).clone()

        def select(self, rows_BR: Tensor) -> None: ...

    drawn = Sampling(nbest=4000)(Fixed(), torch.tensor([0]), Special(begin=3, eos=3), [])
    share = sum(text.tokens[0] == 0 for text in drawn[0]) / 4000
    assert share == pytest.approx(0.5, abs=0.03)


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(AlchemyError, match="nbest = 6 must be at most beam = 5"):
        BeamSearch(nbest=6)
    with pytest.raises(AlchemyError, match="beam = 5 must be a multiple of groups = 2"):
        BeamSearch(groups=2)
    with pytest.raises(AlchemyError, match=r"top_p must be above 0, not 0.0"):
        Sampling(top_p=0.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("how", "name"),
    [
        (BeamSearch, "length_penalty"),
        (BeamSearch, "diversity"),
        (Sampling, "length_penalty"),
        (Sampling, "temperature"),
    ],
)
def test_what_would_make_all_texts_alike_is_refused(how: Any, name: str, value: float) -> None:
    with pytest.raises(AlchemyError, match=f"{name} must be .*, not {value}"):
        how(**{name: value})


@pytest.mark.parametrize("how", [BeamSearch(beam=2), Sampling()])
def test_a_text_is_never_longer_than_the_network_takes(how: Any) -> None:
    net, source = network(1, "learned"), torch.tensor([3])
    write = TextGenerator(how, SPECIAL, Limits(min_length=100, max_length=200, max_extra=200))
    ((text, *_),) = write(Decoder(net, [[3, 4, 5]]), source, longest=net.longest)
    assert len(text.tokens) == net.longest == 64  # its end, which needs no place, for what it begins with


def test_candidates_that_there_are_not_are_no_ends() -> None:
    """A beam wider than the vocabulary, whose first token is the end token."""
    special = Special(begin=0, eos=0)

    class Two:
        """One word and the end token, with equal probabilities."""

        def scores(self, last_N: Tensor) -> Tensor:
            return torch.zeros(len(last_N), 2)

        def select(self, rows_BR: Tensor) -> None: ...

    (found,) = BeamSearch(beam=5, nbest=4, length_penalty=0.0)(
        Two(), torch.tensor([3]), special, [AtMost(torch.tensor([3]), 0)]
    )
    assert [text.tokens for text in found] == [[0], [1, 0], [1, 1, 0], [1, 1, 1, 0]]


@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5 * BLOCK)),
    count=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_the_best_of_blocks_are_the_best_of_all(sizes, count, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(sizes, generator=generator, dtype=torch.float64)
    scores[torch.rand(sizes, generator=generator) < 0.3] = -torch.inf
    sums = torch.randn(sizes[:2], generator=generator, dtype=torch.float64)
    every = (scores + sums[..., None]).flatten(1)
    found = every.gather(1, best_places(scores, sums, count))
    assert torch.equal(found, every.topk(min(count, every.shape[1])).values)


def test_a_score_that_is_no_number_is_not_lost_among_blocks():
    scores = torch.zeros(1, 2, 4 * BLOCK)
    scores[0, 1, 3 * BLOCK + 5] = torch.nan
    assert best_places(scores, torch.zeros(1, 2), 4)[0, 0] == 4 * BLOCK + 3 * BLOCK + 5
