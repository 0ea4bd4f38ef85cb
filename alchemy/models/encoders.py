"""Encoders trained from scratch, which convert token ids to one vector per token."""

# B batch, T tokens, D features

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from loguru import logger
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt, NotEmpty, PositiveInt
from alchemy.data.files import check_file, read_lines
from alchemy.errors import AlchemyError, BadSample
from alchemy.models.windowing import Whole
from alchemy.nn.dropout import Dropout
from alchemy.nn.position_embeddings import waves
from alchemy.nn.sequences import BiRNN, Rows, States
from alchemy.registry import Registrable
from alchemy.text import Tokenizer

# odd and large, so that every id of an n-gram affects all bits of its hash
PRIMES = (1_000_003, 805_459_861, 2_654_435_761, 3_674_653_429, 2_097_192_037)


class Encoder(nn.Module, Registrable):
    """Base class for encoders, which return one vector of size `width` per token, regardless of padding.

    Padding is on the right of each row. An encoder receives the task's tokenizer if its constructor has a
    `tokenizer` parameter.
    """

    width: int
    longest: int | None = None  # maximum number of tokens; None: unlimited
    by_token: bool = True  # exactly one vector per token, as tagging and entity masks require
    reading: Whole = Whole()  # InWindows if the task uses windows

    def __init__(self) -> None:  # hides the **kwargs of nn.Module, which would accept any config key
        super().__init__()

    def forward(self, rows: Rows) -> States:
        raise NotImplementedError(f"{type(self).__name__} must define forward(rows) -> States")

    def read(self, rows: Rows) -> States:
        """Encode rows, which may exceed the maximum length if the encoder reads them in windows."""
        return self.reading(self, rows)


class _Lookup(nn.Module):
    """An embedding table, initialized randomly or from a file of word vectors; padding maps to zeros."""

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
            raise AlchemyError("word_dropout needs an unknown token, but the tokenizer has none")
        self.unk, self.word_dropout = tokenizer.unk or 0, word_dropout
        self.dropout = Dropout(dropout)

    def forward(self, rows: Rows) -> Tensor:
        ids_BT = rows.ids_BT
        if self.training and self.word_dropout:
            ids_BT = torch.where(torch.rand_like(ids_BT, dtype=torch.float) < self.word_dropout, self.unk, ids_BT)
        states_BTD = self.table(ids_BT)
        if self.pairs is not None:
            states_BTD = states_BTD + self.pairs(_hash_bigrams(ids_BT, rows.real_BT, self.pairs.num_embeddings))
        return self.dropout(states_BTD) * rows.real_BT[..., None]


@Encoder.register()
class Embedding(Encoder):
    """Token embeddings without context, for example as the input of TextCNN or mean pooling.

    `vectors` is a file of word vectors (`word 0.1 0.2 ..` per line), `frozen` keeps them fixed, `dropout` zeroes
    features, and `word_dropout` replaces a fraction of the tokens with the unknown token. With `bigrams`, each token
    also gets the vector of its bigram with the next token; bigrams are hashed into a table of `bigrams` vectors.
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
    """Embeddings followed by a bidirectional LSTM or GRU with `hidden` features per direction."""

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
    """Token and position embeddings, followed by pre-norm self-attention layers."""

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
        for param in self.layers.parameters():  # torch copies the first layer, so all layers would start out identical
            if param.dim() > 1:
                nn.init.xavier_uniform_(param)

    def forward(self, rows: Rows) -> States:
        # scaled to the size of the position embeddings: the table is initialized with variance 1 / dim
        states_BTD = self.embed(rows) * math.sqrt(self.width) + self.places_TD[: rows.ids_BT.shape[1]]
        states_BTD = self.layers(self.dropout(states_BTD), src_key_padding_mask=~rows.real_BT)
        return States(states_BTD * rows.real_BT[..., None], rows.real_BT)


@Encoder.register()
class OneHot(Encoder):
    """One-hot vectors of the tokens: an embedding without parameters, for small vocabularies such as residues."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.width = tokenizer.size

    def forward(self, rows: Rows) -> States:
        hot_BTD = nn.functional.one_hot(rows.ids_BT, self.width).float()
        return States(hot_BTD * rows.real_BT[..., None], rows.real_BT)


@Encoder.register()
class Convolution(Encoder):
    """Embeddings followed by residual convolutions over `kernel` tokens, each with its own dilation.

    There is one layer per entry of `dilations`; a token sees `(kernel - 1) / 2 * sum(dilations)` tokens on each side.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        dim: PositiveInt = 64,
        hidden: PositiveInt = 128,
        kernel: PositiveInt = 5,
        dilations: Annotated[list[PositiveInt], NotEmpty()] = [1, 2, 4],
        dropout: Fraction = 0.2,
        vectors: str = "",
        frozen: bool = False,
        word_dropout: Fraction = 0.0,
        bigrams: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.width = hidden
        self.embed = _Lookup(tokenizer, dim, vectors, frozen, dropout, word_dropout, bigrams)
        self.enter = nn.Linear(dim, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in [*dilations, "last"])
        self.convs = nn.ModuleList(nn.Conv1d(hidden, hidden, kernel, padding="same", dilation=d) for d in dilations)
        self.dropout = Dropout(dropout)

    def forward(self, rows: Rows) -> States:
        real_BT1 = rows.real_BT[..., None]
        states_BTD = self.enter(self.embed(rows))
        for norm, conv in zip(self.norms, self.convs):
            inputs_BTD = norm(states_BTD) * real_BT1  # padding is zero, as beyond the ends of a text
            states_BTD = states_BTD + self.dropout(nn.functional.gelu(conv(inputs_BTD.mT).mT))
        return States(self.norms[-1](states_BTD) * real_BT1, rows.real_BT)


@Encoder.register()
class Substitutions(Encoder):
    """Vectors of the residues that differ from a `reference` sequence, such as the wild type of a protein.

    The vector of a substitution depends on its position, with the `window` residues around it, and on both residues;
    all other positions have zero vectors. The pooled vector is the sum over the substitutions, so that the reference
    itself has a vector of zeros. Sequences must be as long as the reference.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        reference: Annotated[str, NotEmpty()],
        dim: PositiveInt = 32,
        hidden: PositiveInt = 128,
        window: PositiveInt = 5,
        dropout: Fraction = 0.5,
    ) -> None:
        super().__init__()
        self.reference_T: Tensor
        self.register_buffer("reference_T", torch.tensor(tokenizer.encode(reference)), persistent=False)
        self.width, self.longest = hidden, len(self.reference_T)
        self.residues = nn.Embedding(tokenizer.size, dim)
        self.positions = nn.Embedding(self.longest, dim)
        for table in (self.residues, self.positions):
            nn.init.normal_(table.weight, std=dim**-0.5)
        self.around = nn.Conv1d(2 * dim, dim, window, padding="same")
        self.mix = nn.Linear(4 * dim, hidden)
        self.dropout = Dropout(dropout)

    def forward(self, rows: Rows) -> States:
        self._check_lengths(rows)
        differs_BT = rows.real_BT & (rows.ids_BT != self.reference_T)
        _, place_N = differs_BT.nonzero(as_tuple=True)
        places_TD, old_TD = self.positions.weight, self.residues(self.reference_T)
        places_TD = places_TD + self.around(torch.cat((old_TD, places_TD), dim=-1).mT).mT
        place_ND, old_ND, new_ND = places_TD[place_N], old_TD[place_N], self.residues(rows.ids_BT[differs_BT])
        mixed_NF = self.mix(torch.cat((place_ND, old_ND, new_ND, place_ND * (new_ND - old_ND)), dim=-1))
        states_BTF = mixed_NF.new_zeros(*rows.ids_BT.shape, self.width)
        states_BTF[differs_BT] = self.dropout(nn.functional.gelu(mixed_NF))
        return States(states_BTF, rows.real_BT, states_BTF.sum(1))

    def _check_lengths(self, rows: Rows) -> None:
        for row, size in enumerate(rows.lengths_B.tolist()):
            if size != self.longest:
                hint = "remove such sequences, or align them with the reference"
                text = f"a sequence has {size} residues, but the reference has {self.longest}"
                raise BadSample(text, row=row, section="model.encoder", hint=hint)


def _hash_bigrams(ids_BT: Tensor, real_BT: Tensor, buckets: int) -> Tensor:
    """Return the hash bucket of the bigram that starts at each token; the last token has no bigram."""
    behind_BT = torch.where(real_BT, ids_BT + 1, 0).roll(-1, dims=1)
    behind_BT[:, -1] = 0
    mixed_BT = (ids_BT + 1) * PRIMES[0] + behind_BT * PRIMES[1]  # may overflow 64 bits, which is fine for a hash
    return (mixed_BT ^ (mixed_BT >> 17)) % buckets


def _read_vectors(path: str, tokenizer: Tokenizer, table_VD: Tensor) -> None:
    """Load the vectors of known words from a word2vec, GloVe or fastText text file into their rows.

    A first line with two integers, as in word2vec files, contains the number of words and the vector size. Rows without
    a vector are left unchanged.
    """
    dim = table_VD.shape[1]
    found: set[int] = set()
    declared = number = 0
    for number, line in read_lines(check_file(path)):
        cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 2 and all(map(str.isdecimal, cells)):
            declared = int(cells[0])
            _check_size(int(cells[1]), dim, f"{path}:1")
            continue
        row = tokenizer.id_of(cells[0])
        if row is None or row in found:
            continue
        table_VD[row] = torch.tensor(_parse_vector(cells[1:], dim, f"{path}:{number}", known=bool(declared or found)))
        found.add(row)
    if number - 1 < declared:
        hint = "is the file truncated? download it again, or fix its first line"
        raise AlchemyError(
            f"the first line declares {declared} words, but there are {number - 1}", where=f"{path}:1", hint=hint
        )
    if not found:
        hint = "are the vectors for a different language, or for words instead of characters?"
        raise AlchemyError(f"none of the {tokenizer.size} tokens has a vector in {path}", hint=hint)
    logger.info("{} of {} tokens have a vector in {}", len(found), tokenizer.size, path)


def _parse_vector(cells: list[str], dim: int, where: str, known: bool) -> list[float]:
    """Parse the values of a line; if `dim` is `known` to be correct, a different size is reported as a broken line."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError as error:
        raise AlchemyError(f"invalid number in a word vector: {error}", where=where) from error
    if known and len(numbers) != dim:
        hint = "the line is broken; is the file truncated?"
        raise AlchemyError(f"a word vector has {len(numbers)} values, expected {dim}", where=where, hint=hint)
    _check_size(len(numbers), dim, where)
    if not all(map(math.isfinite, numbers)):
        hint = "remove the line: its word is then initialized at random"
        raise AlchemyError("a word vector has a non-finite value", where=where, hint=hint)
    return numbers


def _check_size(size: int, dim: int, where: str) -> None:
    if size != dim:
        raise AlchemyError(f"a word vector has {size} values, expected {dim}", where=where, hint=f"set dim = {size}")
