"""Small networks that read a review as a row of characters, alone or as a committee."""

# M members of a committee, B reviews of a batch, L characters, G n-grams, D size of an embedding, F filters, C classes

from collections.abc import Sequence

import torch
from torch import Tensor, nn

PAD = 0


# torch asks whether to check sparse gradients; these are made by its own layers, so no
torch.sparse.check_sparse_tensor_invariants.disable()


class Committee(nn.Module):
    """Networks of one kind that learn each for itself and answer together, which evens out what chance taught them."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, chars_BL: Tensor) -> Tensor:
        """The logarithms of the probabilities that each member gives, `scores_MBC`."""
        return torch.stack([member(chars_BL) for member in self.members]).log_softmax(-1)


class FastText(nn.Module):
    """The mean of the embeddings of all n-grams of characters, and a small network on top of it.

    An n-gram needs no vocabulary: a hash of its characters chooses one of `buckets` embeddings. While training, each
    n-gram is left out with the probability `gram_dropout`, so that no single phrase can carry a review. A batch touches
    few of the embeddings, so their gradient is sparse, and an update costs little however many buckets there are.
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
    """Filters over neighboring characters; of each filter the strongest answer in the review counts."""

    def __init__(
        self, *, buckets: int, dim: int, filters: int, sizes: Sequence[int], dropout: float, char_dropout: float
    ) -> None:
        super().__init__()
        self.buckets, self.char_dropout = buckets, char_dropout
        self.embed = nn.Embedding(buckets, dim, padding_idx=PAD)
        nn.init.normal_(self.embed.weight, std=0.1)
        # padding on both sides, so that a review shorter than a filter has an answer too
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
    """The bucket, from 1 on, of every n-gram of every row; PAD for one that reaches into the padding."""
    columns = []
    for n in ngrams:
        windows_BGn = chars_BL.unfold(1, n, 1) if n <= chars_BL.shape[1] else chars_BL.new_zeros(len(chars_BL), 0, n)
        key_BG = windows_BGn.new_full(windows_BGn.shape[:2], n)
        for place in range(n):
            key_BG = key_BG * 1_000_003 + windows_BGn[..., place]
        columns.append((key_BG % (buckets - 1) + 1).masked_fill(windows_BGn[..., -1] == PAD, PAD))
    return torch.cat(columns, dim=1)
