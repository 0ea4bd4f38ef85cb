"""An encoder-decoder Transformer, with one decoder for training and search."""

# B batch size, T tokens, S source tokens, N hypotheses of a search, Q tokens of all hypotheses of a sentence,
# D features, F inner features, V vocabulary

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, PositiveInt
from alchemy.nn.attention import CrossAttention, SelfAttention
from alchemy.nn.dropout import Dropout
from alchemy.nn.kv_cache import Family, KeyValues, LayerCache
from alchemy.nn.linear import Linear
from alchemy.nn.position_embeddings import Learned, NoPlaces, Sinusoidal
from alchemy.nn.seq2seq import Network, Source
from alchemy.nn.sequences import Rows

Activation = Literal["relu", "gelu", "swiglu"]
Places = Literal["sinusoidal", "learned", "rotary"]
Share = Literal["all", "decoder", "none"]


class _Shape(NamedTuple):
    """The settings shared by encoder and decoder layers."""

    dim: int
    heads: int
    inner: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    activation: Activation
    norm_first: bool
    rotary: bool


class _Residual(nn.Module):
    """A residual connection around a sublayer, with the norm before the sublayer or after the sum."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.norm, self.dropout, self.norm_first = nn.LayerNorm(shape.dim), Dropout(shape.dropout), shape.norm_first

    def normalize(self, states_BTD: Tensor) -> Tensor:
        """Return the input of the sublayer."""
        return self.norm(states_BTD) if self.norm_first else states_BTD

    def forward(self, states_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        made_BTD = states_BTD + self.dropout(sublayer(self.normalize(states_BTD)))
        return made_BTD if self.norm_first else self.norm(made_BTD)


class FeedForward(nn.Module):
    """A position-wise feed-forward network; with `swiglu`, one half of the inner features gates the other."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.gated = shape.activation == "swiglu"
        acts: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swiglu": F.silu}
        self.act = acts[shape.activation]
        self.into = Linear(shape.dim, shape.inner * (1 + self.gated))
        self.dropout = Dropout(shape.activation_dropout)
        self.out = Linear(shape.inner, shape.dim)

    def forward(self, states_BTD: Tensor) -> Tensor:
        inner_BTF = self.into(states_BTD)
        if self.gated:
            gate_BTF, inner_BTF = inner_BTF.chunk(2, dim=-1)
            inner_BTF = self.act(gate_BTF) * inner_BTF
        else:
            inner_BTF = self.act(inner_BTF)
        made_BTD: Tensor = self.out(self.dropout(inner_BTF))
        return made_BTD


class _EncoderLayer(nn.Module):
    """Self-attention over the source, then a feed-forward network."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.attend = SelfAttention(shape.dim, shape.heads, dropout=shape.attention_dropout, rotary=shape.rotary)
        self.think = FeedForward(shape)
        self.around = nn.ModuleList(_Residual(shape) for _ in range(2))

    def forward(self, states_BTD: Tensor, real_B11T: Tensor) -> Tensor:
        states_BTD = self.around[0](states_BTD, lambda states: self.attend(states, real_B11S=real_B11T))
        made_BTD: Tensor = self.around[1](states_BTD, self.think)
        return made_BTD


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the source, then a feed-forward network."""

    def __init__(self, shape: _Shape) -> None:
        super().__init__()
        self.attend = SelfAttention(shape.dim, shape.heads, dropout=shape.attention_dropout, rotary=shape.rotary)
        self.look = CrossAttention(shape.dim, shape.heads, dropout=shape.attention_dropout)
        self.think = FeedForward(shape)
        self.around = nn.ModuleList(_Residual(shape) for _ in range(3))

    def forward(
        self, states_BTD: Tensor, source: KeyValues, real_B11S: Tensor | None, past: LayerCache | None
    ) -> Tensor:
        states_BTD = self.around[0](states_BTD, lambda states: self.attend(states, past=past))
        states_BTD = self.around[1](states_BTD, lambda states: self.look(states, source, real_B11S))
        made_BTD: Tensor = self.around[2](states_BTD, self.think)
        return made_BTD

    def weights(self, states_BTD: Tensor, source: KeyValues, real_B11S: Tensor | None) -> Tensor:
        """Return the attention weights over the source."""
        states_BTD = self.around[0](states_BTD, self.attend)
        return self.look.weights(cast(_Residual, self.around[1]).normalize(states_BTD), source, real_B11S)


class Cached:
    """The decoding state: projected source keys and values, and a key-value cache per layer."""

    def __init__(self, source: list[KeyValues], real_B11S: Tensor) -> None:
        # contiguous, because every step reads them; no mask is needed without padding
        self.source = [KeyValues(*(part.contiguous() for part in layer)) for layer in source]
        self.real_B11S = None if bool(real_B11S.all()) else real_B11S
        self.family = Family(len(real_B11S), real_B11S.device)
        self.past = [LayerCache(self.family) for _ in source]

    @property
    def sentences(self) -> int:
        return len(self.source[0].keys_BHSK)

    def grow(self, tokens: int) -> None:
        """Make room for `tokens` more tokens per hypothesis."""
        if self.family.is_full():
            places_BE = self.family.forget()
            for layer in self.past:
                layer.take(places_BE)
        self.family.grow(tokens)

    def select(self, rows_BR: Tensor) -> None:
        sentences_B = rows_BR[:, 0] // self.family.rows
        self.family.select(sentences_B, rows_BR % self.family.rows)
        if len(sentences_B) < self.sentences:
            for layer in self.past:
                layer.keep(sentences_B)
            self.source = [KeyValues(*(part[sentences_B] for part in layer)) for layer in self.source]
            self.real_B11S = None if self.real_B11S is None else self.real_B11S[sentences_B]


@Network.register()
class Transformer(Network):
    """An encoder-decoder Transformer (Vaswani et al. 2017), with pre-norm (`norm_first`) or post-norm.

    `share` ties embeddings: source, target and output layer (`"all"`), or target and output layer (`"decoder"`).
    """

    def __init__(
        self,
        *,
        source_size: int,
        target_size: int,
        dim: PositiveInt = 512,
        heads: PositiveInt = 8,
        inner: PositiveInt = 2048,
        encoder_layers: PositiveInt = 6,
        decoder_layers: PositiveInt = 6,
        dropout: Fraction = 0.1,
        attention_dropout: Fraction = 0.0,
        activation_dropout: Fraction = 0.0,
        activation: Activation = "relu",
        norm_first: bool = False,
        places: Places = "sinusoidal",
        max_positions: PositiveInt = 1024,
        share: Share = "all",
    ) -> None:
        super().__init__()
        shape = _Shape(
            dim=dim,
            heads=heads,
            inner=inner,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation_dropout=activation_dropout,
            activation=activation,
            norm_first=norm_first,
            rotary=places == "rotary",
        )
        self.scale, self.dropout = math.sqrt(dim), Dropout(dropout)
        self.source_table = nn.Embedding(source_size, dim)
        self.target_table = nn.Embedding(target_size, dim)
        self.out = Linear(dim, target_size, bias=False)
        self.source_places, self.target_places = (_places_of(places, dim, max_positions) for _ in range(2))
        self.encoder = nn.ModuleList(_EncoderLayer(shape) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(decoder_layers))
        # pre-norm layers need a final norm
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(dim) if norm_first else nn.Identity() for _ in range(2))
        self.longest = self.source_places.longest
        self._initialize()
        self._tie(share)

    def _initialize(self) -> None:
        for name, param in self.named_parameters():
            if param.dim() > 1 and "places" not in name:  # position embeddings have their own initialization
                nn.init.xavier_uniform_(param)
        for table in (self.source_table, self.target_table, self.out):
            nn.init.normal_(table.weight, std=1 / self.scale)

    def _tie(self, share: Share) -> None:
        if share == "all":
            self.target_table = self.source_table
        if share != "none":
            self.out.weight = self.target_table.weight

    def encode(self, rows: Rows) -> Source:
        """Encode rows with padding on the right."""
        states_BSD = self.dropout(self.source_places(self.source_table(rows.ids_BT) * self.scale))
        for layer in self.encoder:
            states_BSD = layer(states_BSD, rows.real_BT[:, None, None])
        return Source(self.encoder_norm(states_BSD), rows.real_BT)

    def begin(self, source: Source) -> Cached:
        return Cached(self._project_source(source), source.real_BS[:, None, None])

    def decode(self, before_NT: Tensor, state: Cached) -> Tensor:
        begun_NTD = self._embed_target(before_NT, state.family.length)
        state.grow(before_NT.shape[1])
        # the hypotheses of a sentence form one row, as if they were its tokens
        begun_BQD = begun_NTD.reshape(state.sentences, -1, begun_NTD.shape[-1])
        made_BQD = self._decode(begun_BQD, state.source, state.real_B11S, state.past)
        scores_NTV: Tensor = self.out(made_BQD.view_as(begun_NTD))
        return scores_NTV

    def forward(self, rows: Rows, before_BT: Tensor) -> Tensor:
        source = self.encode(rows)
        begun_BTD, afresh = self._embed_target(before_BT, 0), [None] * len(self.decoder)
        states_BTD = self._decode(begun_BTD, self._project_source(source), source.real_BS[:, None, None], afresh)
        scores_BTV: Tensor = self.out(states_BTD)
        return scores_BTV

    def attended(self, rows: Rows, before_BT: Tensor) -> Tensor:
        """Return the attention of the second-to-last layer, which aligns words best (Garg et al. 2019)."""
        source = self.encode(rows)
        looks, real_B11S = self._project_source(source), source.real_BS[:, None, None]
        seen = max(0, len(looks) - 2)
        states_BTD = self._embed_target(before_BT, 0)
        for layer, look in zip(self._layers[:seen], looks):
            states_BTD = layer(states_BTD, look, real_B11S, None)
        return self._layers[seen].weights(states_BTD, looks[seen], real_B11S)

    @property
    def _layers(self) -> list[DecoderLayer]:
        return list(cast(Iterable[DecoderLayer], self.decoder))

    def _project_source(self, source: Source) -> list[KeyValues]:
        """Return the keys and values of the source for each decoder layer."""
        return [layer.look.project(source.states_BSD) for layer in self._layers]

    def _embed_target(self, before_NT: Tensor, begin: int) -> Tensor:
        states_NTD: Tensor = self.dropout(self.target_places(self.target_table(before_NT) * self.scale, begin))
        return states_NTD

    def _decode(
        self, states_BTD: Tensor, looks: list[KeyValues], real_B11S: Tensor | None, past: Sequence[LayerCache | None]
    ) -> Tensor:
        for layer, look, cache in zip(self._layers, looks, past, strict=True):
            states_BTD = layer(states_BTD, look, real_B11S, cache)
        made_BTD: Tensor = self.decoder_norm(states_BTD)
        return made_BTD


def _places_of(kind: Places, dim: int, longest: int) -> NoPlaces:
    if kind == "learned":
        return Learned(dim, longest)
    return Sinusoidal(dim) if kind == "sinusoidal" else NoPlaces()
