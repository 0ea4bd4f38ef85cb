"""An encoder-decoder model for translation."""

# B rows, T tokens of the target, S of the source, N rows of a search, V vocabulary

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from alchemy.constraints import NonNegativeInt
from alchemy.errors import AlchemyError
from alchemy.generate.search import Steps, log_probs
from alchemy.model import AlchemyModel
from alchemy.nn.losses import CrossEntropy, build_loss
from alchemy.nn.seq2seq import Network
from alchemy.nn.sequences import Rows, in_front
from alchemy.registry import build
from alchemy.text import Tokenizer

# default network: trains in minutes on a CPU with tens of thousands of pairs
SMALL = {
    "type": "alchemy.nn.transformer.Transformer",
    "dim": 128,
    "heads": 4,
    "inner": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "dropout": 0.1,
    "norm_first": True,
}
SMOOTHING = 0.1  # label smoothing with the default network


@runtime_checkable
class _HasTokenizers(Protocol):
    """A task with a source and a target tokenizer."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


class DecodingSteps:
    """Runs the decoding steps of a network during a search."""

    def __init__(self, network: Network, rows: Rows) -> None:
        self.network, self.state = network, network.begin(network.encode(rows))

    def scores(self, last_N: Tensor) -> Tensor:
        return self.network.decode(last_N[:, None], self.state)[:, -1]

    def select(self, rows_BR: Tensor) -> None:
        self.state.select(rows_BR)


@AlchemyModel.register()
class Translator(AlchemyModel):
    """A model that generates the `target` of a batch from its `source` with an encoder-decoder `network`.

    The default is a small Transformer trained with label smoothing 0.1; other networks use plain cross-entropy. A
    `[criterion]` table overrides both. The loss is averaged over target tokens.
    Batches have the format of corpora.Parallel; `before`, the decoder input, is the target shifted right by one.
    Vocabulary sizes come from the task unless `source_size` and `target_size` are set.
    """

    def __init__(
        self,
        *,
        network: dict[str, Any] = {},
        source: str = "source",
        target: str = "target",
        before: str = "prev_output_tokens",
        source_size: NonNegativeInt = 0,
        target_size: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.source, self.target, self.before = source, target, before
        task = self.run.task
        if isinstance(task, _HasTokenizers):
            source_size, target_size = (
                source_size or task.source_tokenizer.size,
                target_size or task.target_tokenizer.size,
            )
        if not (source_size and target_size):
            hint = "set source_size and target_size, or use a task with tokenizers, such as alchemy.tasks.Translation"
            raise AlchemyError("the vocabulary sizes are unknown", section="model", hint=hint)
        sizes = {"source_size": source_size, "target_size": target_size}
        shared = isinstance(task, _HasTokenizers) and task.source_tokenizer is task.target_tokenizer
        table = network or SMALL | {"share": "all" if shared else "decoder"}
        self.model = build(Network, table, given=sizes, section="model.network")
        smoothing = 0.0 if network else SMOOTHING
        self.criterion = (
            build_loss(self.criterion_cfg) if self.criterion_cfg else CrossEntropy(label_smoothing=smoothing)
        )

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the logits of each target token given the preceding tokens; use `walk` to generate text."""
        return {"logits": self.model(self.rows(batch), batch[self.before])}

    def loss(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> tuple[Tensor, float | Tensor]:
        gold_BT = torch.where(self.real(batch), batch[self.target], self.criterion.ignore_index)
        found: tuple[Tensor, float | Tensor] = self.criterion(outputs["logits"].flatten(0, 1), gold_BT.flatten())
        return found

    def log_prob(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> Tensor:
        """Return the log-probability of all targets in a batch, without the label smoothing or weights of the loss."""
        return _target_logs(outputs["logits"], batch[self.target])[self.real(batch)].sum()

    def real(self, batch: Mapping[str, Any]) -> Tensor:
        """Return a mask of the real target tokens."""
        return real(batch[f"{self.target}_lengths"], batch[self.target])

    def rows(self, batch: Mapping[str, Any]) -> Rows:
        """Return the source rows with padding moved to the right."""
        ids_BS = batch[self.source]
        mask_BS = batch.get(f"{self.source}_mask")  # set if padding may be on the left
        real_BS = real(batch[f"{self.source}_lengths"], ids_BS) if mask_BS is None else mask_BS.bool()
        longest = self.module.longest
        if longest is not None and ids_BS.shape[1] > longest:
            hint = "drop long sentences with the split's `max_length`, or increase the maximum length of the network"
            text = f"a source has {ids_BS.shape[1]} tokens, but the network takes at most {longest}"
            raise AlchemyError(text, hint=hint)
        return in_front(Rows(ids_BS, real_BS))[0]

    def max_positions(self) -> int | None:
        longest: int | None = self.module.longest
        return longest

    def walk(self, batch: Mapping[str, Any]) -> Steps:
        """Return the decoding steps of a search for the targets of a batch."""
        return DecodingSteps(self.module, self.rows(batch))

    def logs(self, batch: Mapping[str, Any], texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probabilities of the tokens of `texts`, one text per source; the last token is EOS."""
        target_BT, before_BT = _shift_right(texts, batch[self.source].device)
        logs_BT = _target_logs(self.module(self.rows(batch), before_BT), target_BT)
        return [row[: len(text)] for row, text in zip(logs_BT.tolist(), texts, strict=True)]

    def attended(self, batch: Mapping[str, Any], texts: Sequence[Sequence[Sequence[int]]]) -> list[Tensor]:
        """Return the attention weights between the tokens of each text and its source, one matrix per text."""
        rows = self.rows(batch)
        times_B = torch.tensor([len(several) for several in texts], device=rows.ids_BT.device)
        rows = Rows(rows.ids_BT.repeat_interleave(times_B, 0), rows.real_BT.repeat_interleave(times_B, 0))
        flat = [text for several in texts for text in several]
        try:
            weights_NTS = self.module.attended(rows, _shift_right(flat, rows.ids_BT.device)[1])
        except NotImplementedError as error:
            raise AlchemyError(f"alignments are not available: {error}", section="model.network") from error
        lengths = rows.lengths_B.tolist()
        return [one[: len(text), :length] for one, text, length in zip(weights_NTS.cpu(), flat, lengths, strict=True)]


def real(lengths_B: Tensor, ids_BT: Tensor) -> Tensor:
    """Return a mask that is true for real (non-padding) tokens."""
    return torch.arange(ids_BT.shape[1], device=ids_BT.device) < lengths_B[:, None]


def _shift_right(texts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return texts that end with EOS as padded rows, and their decoder inputs, shifted right by one."""
    target = [torch.tensor(text, dtype=torch.long, device=device) for text in texts]
    before = [row.roll(1) for row in target]
    return pad_sequence(target, batch_first=True), pad_sequence(before, batch_first=True)


def _target_logs(scores_BTV: Tensor, target_BT: Tensor) -> Tensor:
    """Return the log-probabilities of the target tokens."""
    return log_probs(scores_BTV).gather(-1, target_BT[..., None])[..., 0]
