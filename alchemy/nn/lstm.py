"""An LSTM encoder and an LSTM decoder with attention."""

# B batch size, T target tokens, S source tokens, N = B R hypotheses of a search, L layers, D features, V vocabulary

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from alchemy.constraints import Fraction, Ge, MultipleOf, PositiveInt
from alchemy.nn.dropout import Dropout
from alchemy.nn.linear import Linear
from alchemy.nn.seq2seq import Network, Source
from alchemy.nn.sequences import BiRNN, Rows, mean_of


class LSTMState:
    """The decoding state: the source, the LSTM states, and the last attentional vector (input feeding)."""

    def __init__(self, source: Source, hidden_LND: Tensor, cell_LND: Tensor, said_ND: Tensor) -> None:
        self.source, self.hidden_LND, self.cell_LND, self.said_ND = source, hidden_LND, cell_LND, said_ND

    def select(self, rows_BR: Tensor) -> None:
        sentences_B = rows_BR[:, 0] // (len(self.said_ND) // len(self.source.real_BS))
        rows_N = rows_BR.flatten()
        self.hidden_LND, self.cell_LND = self.hidden_LND[:, rows_N], self.cell_LND[:, rows_N]
        self.said_ND = self.said_ND[rows_N]
        if len(sentences_B) < len(self.source.real_BS):
            self.source = Source(*(part[sentences_B] for part in self.source))


@Network.register()
class AttentionLSTM(Network):
    """A BiLSTM encoder and an LSTM decoder with global attention and input feeding (Luong et al. 2015)."""

    def __init__(
        self,
        *,
        source_size: int,
        target_size: int,
        dim: PositiveInt = 256,
        hidden: Annotated[int, Ge(2), MultipleOf(2)] = 256,  # each direction of the encoder uses half of it
        layers: PositiveInt = 1,
        dropout: Fraction = 0.2,
    ) -> None:
        super().__init__()
        self.hidden = hidden
        self.source_table, self.target_table = nn.Embedding(source_size, dim), nn.Embedding(target_size, dim)
        self.reader = BiRNN("lstm", dim, hidden // 2, layers=layers, dropout=dropout)
        self.first = Linear(self.reader.width, 2 * layers * hidden)
        self.writer = nn.LSTM(
            dim + hidden, hidden, num_layers=layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        self.look = Linear(hidden, self.reader.width, bias=False)
        self.say = Linear(hidden + self.reader.width, hidden)
        self.dropout, self.out = Dropout(dropout), Linear(hidden, target_size)

    def encode(self, rows: Rows) -> Source:
        states_BSD, _ = self.reader(self.dropout(self.source_table(rows.ids_BT)), rows.lengths_B)
        return Source(states_BSD, rows.real_BT)

    def begin(self, source: Source) -> LSTMState:
        mean_BD = mean_of(source.states_BSD, source.real_BS)  # excluding padding
        made_NLD = self.first(mean_BD).tanh().unflatten(-1, (-1, self.hidden))
        hidden_LND, cell_LND = (part.contiguous() for part in made_NLD.transpose(0, 1).chunk(2))
        return LSTMState(source, hidden_LND, cell_LND, torch.zeros_like(hidden_LND[0]))

    def decode(self, before_NT: Tensor, state: LSTMState) -> Tensor:
        return self._scores(before_NT, state)[0]

    def forward(self, rows: Rows, before_BT: Tensor) -> Tensor:
        return self.decode(before_BT, self.begin(self.encode(rows)))

    def attended(self, rows: Rows, before_BT: Tensor) -> Tensor:
        return self._scores(before_BT, self.begin(self.encode(rows)))[1]

    def _scores(self, before_NT: Tensor, state: LSTMState) -> tuple[Tensor, Tensor]:
        words_NTD = self.dropout(self.target_table(before_NT))
        said, looks = [], []
        for place in range(before_NT.shape[1]):  # input feeding
            given_N1D = torch.cat((words_NTD[:, place], state.said_ND), dim=-1)[:, None]
            made_N1D, (state.hidden_LND, state.cell_LND) = self.writer(given_N1D, (state.hidden_LND, state.cell_LND))
            state.said_ND, look_NS = self._look(made_N1D[:, 0], state.source)
            said.append(state.said_ND)
            looks.append(look_NS)
        scores_NTV: Tensor = self.out(self.dropout(torch.stack(said, dim=1)))
        return scores_NTV, torch.stack(looks, dim=1)

    def _look(self, made_ND: Tensor, source: Source) -> tuple[Tensor, Tensor]:
        """Return the attentional vector and the attention weights over the source."""
        made_BRD = made_ND.unflatten(0, (len(source.real_BS), -1))
        score_BRS = self.look(made_BRD) @ source.states_BSD.mT
        weight_BRS = score_BRS.masked_fill(~source.real_BS[:, None], -torch.inf).softmax(-1)
        seen_ND = (weight_BRS @ source.states_BSD).flatten(0, 1)
        return self.say(torch.cat((made_ND, seen_ND), dim=-1)).tanh(), weight_BRS.flatten(0, 1)
