"""Heads, which pool the token vectors of a text into one vector."""

# B batch, T tokens, D features of a token, F features of a text, K width of a filter

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from alchemy.constraints import Fraction, NonNegativeInt, NotEmpty, PositiveInt
from alchemy.nn.dropout import Dropout
from alchemy.nn.sequences import BiRNN, States, at, max_of, mean_of
from alchemy.registry import Registrable


class Head(nn.Module, Registrable):
    """Base class for heads, which return one vector of size `width` per text, regardless of padding.

    Padding is on the right. The first constructor parameter of a head is `inputs`, the size of a token vector.
    """

    width: int

    def __init__(self) -> None:  # hides the **kwargs of nn.Module, which would accept any config key
        super().__init__()

    def forward(self, encoded: States) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must define forward(encoded) -> text vectors")


@Head.register()
class Pool(Head):
    """Pooling without parameters: the encoder's own pooling, the first or last token, the mean or the maximum.

    `how = "encoder"` uses the pooled output of the encoder (BERT's pooler, the last states of an LSTM), or the mean if
    the encoder has none.
    """

    def __init__(self, inputs: int, *, how: Literal["encoder", "first", "last", "mean", "max"] = "encoder") -> None:
        super().__init__()
        self.width, self.how = inputs, how

    def forward(self, encoded: States) -> Tensor:
        states_BTD, real_BT, pooled_BD = encoded
        match self.how:
            case "encoder" if pooled_BD is not None:
                return pooled_BD
            case "first":
                return states_BTD[:, 0]
            case "last":
                return at(states_BTD, encoded.lengths_B - 1)
            case "max":
                return max_of(states_BTD, real_BT)
        return mean_of(states_BTD, real_BT)


@Head.register()
class SumMax(Head):
    """Concatenates the sum of the vectors, divided by the square root of their number, and their maximum.

    With `NGrams`, the sum represents the whole text, and the maximum picks out single decisive n-grams.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.width = 2 * inputs

    def forward(self, encoded: States) -> Tensor:
        states_BTD, real_BT, _ = encoded
        mean_BD = mean_of(states_BTD, real_BT)
        sum_BD = mean_BD * real_BT.sum(1, keepdim=True).to(mean_BD.dtype).sqrt()
        return torch.cat((sum_BD, max_of(states_BTD, real_BT)), dim=-1)


@Head.register()
class CNN(Head):
    """TextCNN (Kim 2014): convolutions of several sizes over the tokens with max pooling."""

    def __init__(
        self,
        inputs: int,
        *,
        filter_sizes: Annotated[list[PositiveInt], NotEmpty()] = [3, 4, 5],
        filter_num: PositiveInt = 256,
    ) -> None:
        super().__init__()
        self.sizes = filter_sizes
        self.convs = nn.ModuleList(nn.Conv1d(inputs, filter_num, size) for size in filter_sizes)
        self.width = filter_num * len(filter_sizes)

    def forward(self, encoded: States) -> Tensor:
        states_BDT = (encoded.states_BTD * encoded.real_BT[..., None]).mT
        # zero padding at the end: a window starts at each real token, so even a short text has one
        windows = [conv(F.pad(states_BDT, (0, size - 1))) for size, conv in zip(self.sizes, self.convs)]
        return torch.cat([max_of(F.relu(windows_BFT).mT, encoded.real_BT) for windows_BFT in windows], dim=-1)


class _Recurrent(Head):
    """Base class for the LSTM and GRU heads, which return the last states of both directions."""

    def __init__(self, rnn: BiRNN, dropout: float) -> None:
        super().__init__()
        self.rnn, self.width, self.dropout = rnn, rnn.width, Dropout(dropout)

    def forward(self, encoded: States) -> Tensor:
        return self.dropout(self.rnn(encoded.states_BTD, encoded.lengths_B)[1])


@Head.register()
class LSTM(_Recurrent):
    """The last states of a bidirectional LSTM."""

    def __init__(
        self,
        inputs: int,
        *,
        lstm_hidden_size: PositiveInt = 300,
        lstm_layers: PositiveInt = 2,
        lstm_dropout: Fraction = 0.5,
    ) -> None:
        super().__init__(
            BiRNN("lstm", inputs, lstm_hidden_size, layers=lstm_layers, dropout=lstm_dropout), lstm_dropout
        )


@Head.register()
class GRU(_Recurrent):
    """The last states of a bidirectional GRU."""

    def __init__(
        self,
        inputs: int,
        *,
        gru_hidden_size: PositiveInt = 300,
        gru_layers: PositiveInt = 2,
        gru_dropout: Fraction = 0.5,
    ) -> None:
        super().__init__(BiRNN("gru", inputs, gru_hidden_size, layers=gru_layers, dropout=gru_dropout), gru_dropout)


@Head.register()
class RCNN(Head):
    """TextRCNN (Lai et al. 2015): max pooling over the tokens and their context from a bidirectional LSTM."""

    def __init__(
        self, inputs: int, *, hidden: PositiveInt = 256, layers: PositiveInt = 1, dropout: Fraction = 0.0
    ) -> None:
        super().__init__()
        self.rnn = BiRNN("lstm", inputs, hidden, layers=layers, dropout=dropout)
        self.mix = nn.Linear(inputs + self.rnn.width, self.rnn.width)
        self.width = self.rnn.width

    def forward(self, encoded: States) -> Tensor:
        context, _ = self.rnn(encoded.states_BTD, encoded.lengths_B)
        return max_of(torch.tanh(self.mix(torch.cat((encoded.states_BTD, context), dim=-1))), encoded.real_BT)


@Head.register()
class Attention(Head):
    """Attention pooling: a weighted mean of the tokens (Zhou et al. 2016)."""

    def __init__(self, inputs: int, *, hidden: NonNegativeInt = 0) -> None:
        super().__init__()
        self.width = inputs
        self.score = nn.Sequential(nn.Linear(inputs, hidden or inputs), nn.Tanh(), nn.Linear(hidden or inputs, 1))

    def forward(self, encoded: States) -> Tensor:
        scores_BT = self.score(encoded.states_BTD)[..., 0].masked_fill(~encoded.real_BT, -torch.inf)
        return (scores_BT.softmax(-1)[:, None] @ encoded.states_BTD)[:, 0]


@Head.register()
class DPCNN(Head):
    """Deep pyramid CNN (Johnson and Zhang 2017): halves the sequence between convolutions until one token is left."""

    def __init__(self, inputs: int, *, filter_num: PositiveInt = 250, dropout: Fraction = 0.0) -> None:
        super().__init__()
        self.width = filter_num
        self.region = nn.Conv1d(inputs, filter_num, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv1d(filter_num, filter_num, 3, padding=1) for _ in range(2))
        # shared by all blocks: a longer text passes through more blocks
        self.block = nn.ModuleList(nn.Conv1d(filter_num, filter_num, 3, padding=1) for _ in range(2))
        self.dropout = Dropout(dropout)

    def forward(self, encoded: States) -> Tensor:
        real_BT = encoded.real_BT
        region_BFT = self.region((encoded.states_BTD * real_BT[..., None]).mT) * real_BT[:, None]
        states_BFT = self._convolve(self.first, region_BFT, real_BT) + region_BFT
        while states_BFT.shape[-1] > 1:
            half_BFT, half_BT = _halve(states_BFT, real_BT)
            deeper = self._convolve(self.block, half_BFT, half_BT) + half_BFT
            # a text of one token is finished, however long the others in the batch are
            done_B11 = (real_BT.sum(1) == 1)[:, None, None]
            states_BFT, real_BT = torch.where(done_B11, half_BFT, deeper), half_BT
        return self.dropout(states_BFT[..., 0])

    @staticmethod
    def _convolve(convs: nn.ModuleList, states_BFT: Tensor, real_BT: Tensor) -> Tensor:
        for conv in convs:
            states_BFT = conv(F.relu(states_BFT)) * real_BT[:, None]
        return states_BFT


def _halve(states_BFT: Tensor, real_BT: Tensor) -> tuple[Tensor, Tensor]:
    """Max-pool with size 3 and stride 2; a text of one token is unchanged."""
    size = states_BFT.shape[-1]
    odd = size % 2
    open_BFT = F.pad(states_BFT.masked_fill(~real_BT[:, None], -torch.inf), (0, 1 + odd), value=-torch.inf)
    half_BT = F.pad(real_BT, (0, odd))[:, ::2]
    half_BFT = F.max_pool1d(open_BFT, 3, stride=2)
    return half_BFT.masked_fill(~half_BT[:, None], 0.0), half_BT
