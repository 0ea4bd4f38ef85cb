"""Encoders that are trained from nothing: rows of ids become a vector for each token."""

# B batch, T tokens, D features

from __future__ import annotations

import math
from typing import Literal

import torch
from loguru import logger
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt, PositiveInt
from alchemy.data.files import check_file, read_lines
from alchemy.errors import AlchemyError
from alchemy.models.windowing import Whole
from alchemy.nn.dropout import Dropout
from alchemy.nn.position_embeddings import waves
from alchemy.nn.sequences import BiRNN, Rows, States
from alchemy.registry import Registrable
from alchemy.text import Tokenizer

# odd and large: every id of a run reaches all bits of its hash
PRIMES = (1_000_003, 805_459_861, 2_654_435_761, 3_674_653_429, 2_097_192_037)


class Encoder(nn.Module, Registrable):
    """Gives a vector of `width` numbers for each token; whatever stands at padding, it never changes one of them.

    The rows have their real tokens in front. An encoder is handed the `tokenizer` of the task, if its constructor
    names it.
    """

    width: int
    longest: int | None = None  # tokens that it can take; None: any number
    by_token: bool = True  # a vector for each token, and no others; tags and marks need that
    reading: Whole = Whole()  # or windows, where the task asks for them

    def __init__(self) -> None:  # without it the **kwargs of nn.Module would be taken for keys of the config
        super().__init__()

    def forward(self, rows: Rows) -> States:
        raise NotImplementedError(f"{type(self).__name__} must define forward(rows) -> States")

    def read(self, rows: Rows) -> States:
        """The vectors of rows that may be longer than the encoder takes, if it reads in windows."""
        return self.reading(self, rows)


class _Lookup(nn.Module):
    """The vectors of ids: random, or read from a file of word vectors; zero at padding."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        dim: int,
        vectors: str,
        frozen: bool,
        dropout: float,
        word_dropout: float,
        bigrams: int,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(tokenizer.size, dim)
        nn.init.normal_(self.table.weight, std=dim**-0.5)
        self.pairs = nn.Embedding(bigrams, dim) if bigrams else None
        if self.pairs is not None:
            nn.init.normal_(self.pairs.weight, std=dim**-0.5)
        if vectors:
            _read_vectors(vectors, tokenizer, self.table.weight.data)
        if frozen:
            self.table.weight.requires_grad = False
        if word_dropout and tokenizer.unk is None:
            raise AlchemyError("word_dropout puts the unknown word in place of others, and the tokenizer has none")
        self.unk, self.word_dropout = tokenizer.unk or 0, word_dropout
        self.dropout = Dropout(dropout)

    def forward(self, rows: Rows) -> Tensor:
        ids_BT = rows.ids_BT
        if self.training and self.word_dropout:
            ids_BT = torch.where(torch.rand_like(ids_BT, dtype=torch.float) < self.word_dropout, self.unk, ids_BT)
        states_BTD = self.table(ids_BT)
        if self.pairs is not None:
            states_BTD = states_BTD + self.pairs(_pair_numbers(ids_BT, rows.real_BT, self.pairs.num_embeddings))
        return self.dropout(states_BTD) * rows.real_BT[..., None]


@Encoder.register()
class Embedding(Encoder):
    """The vector of each id, and nothing more: what TextCNN or a mean of words begin with.

    `vectors` is a file of word vectors (`word 0.1 0.2 ..` a line), `frozen` leaves them as they are, `dropout` zeroes
    numbers, `word_dropout` puts the unknown word in the place of a share of the words. With `bigrams` a token also has
    the vector of itself and the next one; so many vectors are shared by all such pairs, by a hash.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dim: PositiveInt = 300,
        vectors: str = "",
        frozen: bool = False,
        dropout: Fraction = 0.0,
        word_dropout: Fraction = 0.0,
        bigrams: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.width = dim
        self.embed = _Lookup(tokenizer, dim, vectors, frozen, dropout, word_dropout, bigrams)

    def forward(self, rows: Rows) -> States:
        return States(self.embed(rows), rows.real_BT)


@Encoder.register()
class Recurrent(Encoder):
    """Embeddings, and over them an LSTM or a GRU in both directions, of `hidden` numbers each."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        kind: Literal["lstm", "gru"] = "lstm",
        dim: PositiveInt = 300,
        hidden: PositiveInt = 128,
        layers: PositiveInt = 1,
        dropout: Fraction = 0.5,
        vectors: str = "",
        frozen: bool = False,
        word_dropout: Fraction = 0.0,
        bigrams: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.embed = _Lookup(tokenizer, dim, vectors, frozen, dropout, word_dropout, bigrams)
        self.rnn = BiRNN(kind, dim, hidden, layers=layers, dropout=dropout)
        self.dropout = Dropout(dropout)
        self.width = self.rnn.width

    def forward(self, rows: Rows) -> States:
        states, last = self.rnn(self.embed(rows), rows.lengths_B)
        return States(self.dropout(states), rows.real_BT, self.dropout(last))


@Encoder.register()
class Transformer(Encoder):
    """Embeddings with places, and over them layers of self-attention; layer norm stands in front of each sublayer."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dim: PositiveInt = 256,
        heads: PositiveInt = 4,
        layers: PositiveInt = 2,
        inner: PositiveInt = 1024,
        dropout: Fraction = 0.1,
        max_length: PositiveInt = 512,
        vectors: str = "",
        frozen: bool = False,
        word_dropout: Fraction = 0.0,
        bigrams: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.width, self.longest = dim, max_length
        self.embed = _Lookup(tokenizer, dim, vectors, frozen, 0.0, word_dropout, bigrams)
        self.places_TD: Tensor
        self.register_buffer("places_TD", waves(max_length, dim), persistent=False)
        self.dropout = Dropout(dropout)
        layer = nn.TransformerEncoderLayer(dim, heads, inner, dropout, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        for param in self.layers.parameters():  # torch copies the first layer: all would begin with the same numbers
            if param.dim() > 1:
                nn.init.xavier_uniform_(param)

    def forward(self, rows: Rows) -> States:
        # as large as the places: the table begins with a variance of 1 / dim
        states_BTD = self.embed(rows) * math.sqrt(self.width) + self.places_TD[: rows.ids_BT.shape[1]]
        states_BTD = self.layers(self.dropout(states_BTD), src_key_padding_mask=~rows.real_BT)
        return States(states_BTD * rows.real_BT[..., None], rows.real_BT)


def _pair_numbers(ids_BT: Tensor, real_BT: Tensor, buckets: int) -> Tensor:
    """A number below `buckets` for each token and the one behind it; behind the last one there is none."""
    behind_BT = torch.where(real_BT, ids_BT + 1, 0).roll(-1, dims=1)
    behind_BT[:, -1] = 0
    mixed_BT = (ids_BT + 1) * PRIMES[0] + behind_BT * PRIMES[1]  # it may wrap around at 64 bits, as a hash does
    return (mixed_BT ^ (mixed_BT >> 17)) % buckets


def _read_vectors(path: str, tokenizer: Tokenizer, table_VD: Tensor) -> None:
    """Puts the vectors of words that the tokenizer knows into their rows, from files of word2vec, GloVe and fastText.

    A first line with two whole numbers, as word2vec writes it, tells how many words there are, and how many numbers
    each has. Other rows stay as they are.
    """
    dim = table_VD.shape[1]
    found: set[int] = set()
    told = number = 0
    for number, line in read_lines(check_file(path)):
        cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 2 and all(map(str.isdecimal, cells)):
            told = int(cells[0])
            _check_size(int(cells[1]), dim, f"{path}:1")
            continue
        row = tokenizer.id_of(cells[0])
        if row is None or row in found:
            continue
        table_VD[row] = torch.tensor(_numbers(cells[1:], dim, f"{path}:{number}", known=bool(told or found)))
        found.add(row)
    if number - 1 < told:
        hint = "was it cut while it was copied? get it anew, or mend its first line"
        raise AlchemyError(
            f"the first line tells of {told} words, and there are {number - 1}", where=f"{path}:1", hint=hint
        )
    if not found:
        hint = "are they of another language, or for words where these are characters?"
        raise AlchemyError(f"none of the {tokenizer.size} symbols has a vector in {path}", hint=hint)
    logger.info("{} of {} symbols have a vector in {}", len(found), tokenizer.size, path)


def _numbers(cells: list[str], dim: int, where: str, known: bool) -> list[float]:
    """The numbers of a line; where the size is `known` to be the right one, it is the line that is wrong."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError as error:
        raise AlchemyError(f"a word vector has something that is no number: {error}", where=where) from error
    if known and len(numbers) != dim:
        hint = "the line is broken, as the last of a file that was cut is"
        raise AlchemyError(f"a word vector has {len(numbers)} numbers, and those before {dim}", where=where, hint=hint)
    _check_size(len(numbers), dim, where)
    if not all(map(math.isfinite, numbers)):
        hint = "take the line out: its word then begins with random numbers"
        raise AlchemyError("a word vector has a number that is not finite", where=where, hint=hint)
    return numbers


def _check_size(size: int, dim: int, where: str) -> None:
    if size != dim:
        raise AlchemyError(f"a word vector has {size} numbers", where=where, hint=f"set dim = {size}")
