"""The contracts of encoders and heads; padding never changes a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.config.part_source import parts
from alchemy.errors import AlchemyError
from alchemy.models.encoders import Convolution, Embedding, Encoder, OneHot, Recurrent, Transformer
from alchemy.models.fasttext import NGrams
from alchemy.models.heads import CNN, DPCNN, GRU, LSTM, RCNN, Attention, Head, Pool, SumMax
from alchemy.models.pretrained import Pretrained
from alchemy.nn.sequences import in_front
from tests.logs import warned
from tests.models.tiny import KINDS, folder, padded, ragged, words

HEADS: dict[str, Any] = {
    "cnn": lambda n: CNN(n, filter_sizes=[2, 3, 6], filter_num=5),
    "lstm": lambda n: LSTM(n, lstm_hidden_size=6),
    "gru": lambda n: GRU(n, gru_hidden_size=6, gru_layers=1),
    "rcnn": lambda n: RCNN(n, hidden=6),
    "attention": lambda n: Attention(n, hidden=6),
    "dpcnn": lambda n: DPCNN(n, filter_num=7),
    "summax": SumMax,
    **{how: lambda n, how=how: Pool(n, how=how) for how in ("encoder", "first", "last", "mean", "max")},
}
FRESH: dict[str, Any] = {
    "embedding": lambda: Embedding(words(), dim=8),
    "lstm": lambda: Recurrent(words(), dim=8, hidden=6, layers=2),
    "gru": lambda: Recurrent(words(), kind="gru", dim=8, hidden=6),
    "one-hot": lambda: OneHot(words()),
    "convolution": lambda: Convolution(words(), dim=8, hidden=6, kernel=3, dilations=[1, 2]),
    "bigrams": lambda: Embedding(words(), dim=8, bigrams=50),
    "transformer": lambda: Transformer(words(), dim=8, heads=2, inner=16, max_length=24),
}
RUNS = {  # return spans of tokens, not tokens
    "ngrams": lambda: NGrams(words(), dim=8, ngrams=[1, 2, 4], buckets=30),
    "ends": lambda: NGrams(words(), dim=8, ngrams=[1, 2], buckets=30, ends=True, sparse=True),
}


def test_every_encoder_and_head_that_is_listed_is_held_to_the_contract() -> None:
    made = [make() for make in (FRESH | RUNS).values()] + [make(8) for make in HEADS.values()]
    listed = {part.path.rpartition(".")[2] for kind in ("encoder", "head") for part in parts(kind)}
    # Substitutions reads only texts as long as its reference
    assert listed == {"Pretrained", "Substitutions", *(type(part).__name__ for part in made)}


@pytest.fixture(scope="module", params=[*FRESH, *KINDS])
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    torch.manual_seed(1)
    name = request.param
    made = FRESH[name]() if name in FRESH else Pretrained(str(folder(tmp_path_factory.mktemp("hf"), name)))
    return made.eval()


def vectors(encoder: Encoder, rows: Any) -> torch.Tensor:
    """Return the vectors of all real tokens, row by row."""
    front, _ = in_front(rows)
    return encoder(front).states_BTD[front.real_BT]


@torch.no_grad()
def test_tokens_do_not_see_padding(encoder: Encoder) -> None:
    texts = ragged([5, 1, 9])
    plain = vectors(encoder, padded(texts))
    assert plain.shape == (15, encoder.width)
    for extra, left, fill in ((0, True, 0), (4, False, 0), (7, True, 0), (3, False, 9)):
        again = vectors(encoder, padded(texts, extra, left, fill))
        assert torch.allclose(plain, again, atol=1e-5), (extra, left, fill)
    alone = torch.cat([vectors(encoder, padded([text])) for text in texts])
    assert torch.allclose(plain, alone, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("below", ["lstm", "ngrams", "ends"])
@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 13), min_size=1, max_size=5),
    extra=st.integers(0, 9),
    left=st.booleans(),
    seed=st.integers(0, 99),
)
def test_texts_do_not_see_padding(below: str, name: str, lengths: list[int], extra: int, left: bool, seed: int) -> None:
    torch.manual_seed(seed)
    encoder, texts = (FRESH | RUNS)[below]().eval(), ragged(lengths, seed)
    head = HEADS[name](encoder.width).eval()
    with torch.no_grad():
        plain = torch.cat([head(encoder(padded([text]))) for text in texts])
        together = head(encoder(in_front(padded(texts, extra, left))[0]))
    assert plain.shape == (len(texts), head.width)
    assert torch.allclose(plain, together, atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_every_weight_of_a_head_learns(name: str) -> None:
    torch.manual_seed(0)
    head: Head = HEADS[name](8)
    states = Embedding(words(), dim=8)(padded(ragged([6, 9, 12])))
    states.states_BTD.retain_grad()
    head(states).square().sum().backward()
    assert all(param.grad is not None and param.grad.abs().sum() > 0 for param in head.parameters())
    assert states.states_BTD.grad is not None
    assert states.states_BTD.grad[~states.real_BT].abs().sum() == 0


def test_an_empty_text_is_no_nan(encoder: Encoder) -> None:
    rows, _ = in_front(padded([torch.empty(0, dtype=torch.long), ragged([3])[0]]))
    assert all(torch.isfinite(made(encoder.width).eval()(encoder(rows))).all() for made in HEADS.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_read_as_transformers_reads_it(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    path = folder(tmp_path, kind)
    rows = padded(ragged([4, 7]))
    theirs = transformers.AutoModel.from_pretrained(path).eval()
    want = theirs(input_ids=rows.ids_BT, attention_mask=rows.real_BT.long()).last_hidden_state
    ours = Pretrained(str(path)).eval()
    assert torch.equal(ours(rows).states_BTD, want)
    ours.save_pretrained(tmp_path / "again")
    assert torch.equal(Pretrained(str(tmp_path / "again")).eval()(rows).states_BTD, want)


@pytest.mark.parametrize(("kind", "longest"), [("bert", 20), ("roberta", 19), ("xlnet", None)])
def test_the_longest_text_is_known(kind: str, longest: int | None, tmp_path: Path) -> None:
    assert Pretrained(str(folder(tmp_path, kind))).longest == longest


@pytest.mark.parametrize(("kind", "told"), [("convbert", True), ("squeezebert", False)])
def test_a_model_that_lets_padding_into_its_vectors_is_told(kind: str, told: bool, tmp_path: Path) -> None:
    path = folder(tmp_path, kind, embedding_size=16)
    with warned() as lines:
        encoder = Pretrained(str(path)).eval()
    assert [line.partition(",")[0] for line in lines] == [f"the vectors of {path} ({kind}) depend on padding"] * told
    plain, again = (vectors(encoder, padded(ragged([3]), extra)) for extra in (0, 4))
    assert torch.allclose(plain, again, atol=1e-5) is not told


def test_folders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = folder(tmp_path, "bert")
    with pytest.raises(AlchemyError, match="nothing is downloaded"):
        Pretrained("bert-base-chinese")
    from alchemy.text import Characters

    with pytest.raises(AlchemyError, match="supports 40"):
        Pretrained(str(path), tokenizer=Characters.train(map(chr, range(200, 300))))
    with pytest.raises(AlchemyError, match="did you mean 'hidden_dropout_prob'"):
        Pretrained(str(path), options={"hidden_dropout_pro": 0.2})
    with pytest.raises(AlchemyError, match="did you mean 'bert'"):
        Pretrained(str(path), kind="brt")
    (path / "model.safetensors").unlink()
    with pytest.raises(AlchemyError, match="weights = false"):
        Pretrained(str(path))
    assert Pretrained(str(path), weights=False).width == 16
