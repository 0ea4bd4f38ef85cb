"""Small character-level networks, single or as an ensemble."""

# M members of the ensemble, B reviews per batch, L characters, G n-grams, D embedding size, F filters, C classes

from collections.abc import Sequence

import torch
from torch import Tensor, nn

PAD = 0


# torch warns unless this is set; its own layers make the sparse gradients, so a check is not needed
torch.sparse.check_sparse_tensor_invariants.disable()


class Ensemble(nn.Module):
    """An ensemble of networks that are trained independently; averaging their predictions reduces the variance."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, chars_BL: Tensor) -> Tensor:
        """Return the log-probabilities of each member, `scores_MBC`."""
        return torch.stack([member(chars_BL) for member in self.members]).log_softmax(-1)


class FastText(nn.Module):
    """The mean of the embeddings of all character n-grams, followed by a small network.

    There is no vocabulary: a hash of the characters of an n-gram selects one of `buckets` embeddings. During training,
    each n-gram is dropped with the probability `gram_dropout`, so that a review does not depend on a single phrase. A
    batch uses few embeddings, so gradients are sparse and an update is cheap even with many buckets.
    """

    def __init__(
        self, *, buckets: int, dim: int, hidden: int, ngrams: Sequence[int], dropout: float, gram_dropout: float
    ) -> None:
        super().__init__()
        self.buckets, self.ngrams, self.gram_dropout = buckets, tuple(ngrams), gram_dropout
        self.embed = nn.EmbeddingBag(buckets, dim, mode="mean", padding_idx=PAD, sparse=True)
        nn.init.normal_(self.embed.weight, std=0.01)
        self.classify = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, 2)
        )

    def forward(self, chars_BL: Tensor) -> Tensor:
        grams_BG = hash_ngrams(chars_BL, self.ngrams, self.buckets)
        if self.training and self.gram_dropout:
            dropped_BG = torch.rand(grams_BG.shape, device=grams_BG.device) < self.gram_dropout
            grams_BG = grams_BG.masked_fill(dropped_BG, PAD)
        return self.classify(self.embed(grams_BG))


class TextCNN(nn.Module):
    """Convolutions over characters with max pooling over the review."""

    def __init__(
        self, *, buckets: int, dim: int, filters: int, sizes: Sequence[int], dropout: float, char_dropout: float
    ) -> None:
        super().__init__()
        self.buckets, self.char_dropout = buckets, char_dropout
        self.embed = nn.Embedding(buckets, dim, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.1)
        # padding on both sides, so that a review may be shorter than a filter
        self.convs = nn.ModuleList(nn.Conv1d(dim, filters, size, padding=size - 1) for size in sizes)
        self.classify = nn.Sequential(nn.Dropout(dropout), nn.Linear(filters * len(sizes), 2))

    def forward(self, chars_BL: Tensor) -> Tensor:
        ids_BL = hash_ngrams(chars_BL, (1,), self.buckets)
        if self.training and self.char_dropout:
            dropped_BL = torch.rand(ids_BL.shape, device=ids_BL.device) < self.char_dropout
            ids_BL = ids_BL.masked_fill(dropped_BL, PAD)
        x_BDL = self.embed(ids_BL).mT
        answers_BF = [conv(x_BDL).relu().amax(dim=-1) for conv in self.convs]
        return self.classify(torch.cat(answers_BF, dim=-1))


def hash_ngrams(chars_BL: Tensor, ngrams: Sequence[int], buckets: int) -> Tensor:
    """Return the bucket, starting at 1, of every n-gram of every row; PAD for n-grams that contain padding."""
    columns = []
    for n in ngrams:
        windows_BGn = chars_BL.unfold(1, n, 1) if n <= chars_BL.shape[1] else chars_BL.new_zeros(len(chars_BL), 0, n)
        key_BG = windows_BGn.new_full(windows_BGn.shape[:2], n)
        for place in range(n):
            key_BG = key_BG * 1_000_003 + windows_BGn[..., place]
        columns.append((key_BG % (buckets - 1) + 1).masked_fill(windows_BGn[..., -1] == PAD, PAD))
    return torch.cat(columns, dim=1)
