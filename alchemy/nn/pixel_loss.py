"""Segmentation loss: cross entropy, and optionally Dice, over the pixels that are not ignored."""

# B batch, K classes, H height, W width

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from alchemy.constraints import Fraction, NonNegativeFloat
from alchemy.nn.losses import Count, CrossEntropy, Loss


class PixelLoss(Loss):
    """Cross entropy over pixels plus `dice` times the soft Dice loss of each image; the count is the number of pixels.

    The Dice loss of an image is one minus the mean Dice coefficient of the classes that occur in its mask. It is
    weighted by the pixels of the image, so that the loss does not depend on how a batch is split.
    """

    def __init__(
        self,
        *,
        dice: NonNegativeFloat = 0.0,
        label_smoothing: Fraction = 0.0,
        ignore_index: int = 255,
        weight: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.dice, self.ignore_index = dice, ignore_index
        self.cross_entropy = CrossEntropy(label_smoothing=label_smoothing, ignore_index=ignore_index, weight=weight)

    def forward(self, logits_BKHW: Tensor, mask_BHW: Tensor) -> tuple[Tensor, Count]:
        total, count = self.cross_entropy(logits_BKHW, mask_BHW)
        if self.dice:
            total = total + self.dice * self._sum_dice(logits_BKHW.float(), mask_BHW)
        return total, count

    def _sum_dice(self, logits_BKHW: Tensor, mask_BHW: Tensor) -> Tensor:
        """Return the sum of the Dice losses of the images, each multiplied by its number of pixels."""
        classes = logits_BKHW.shape[1]
        kept_BHW = mask_BHW != self.ignore_index
        target_BHWK = F.one_hot(torch.where(kept_BHW, mask_BHW, 0), classes)
        target_BKP = (target_BHWK * kept_BHW[..., None]).flatten(1, 2).mT.to(logits_BKHW.dtype)
        p_BKP = logits_BKHW.softmax(dim=1).flatten(2) * kept_BHW.flatten(1)[:, None]
        both_BK, sizes_BK = (p_BKP * target_BKP).sum(2), target_BKP.sum(2)
        dice_BK = 2 * both_BK / (p_BKP.sum(2) + sizes_BK).clamp_min(1e-7)
        occurs_BK = sizes_BK > 0
        dice_B = (dice_BK * occurs_BK).sum(1) / occurs_BK.sum(1).clamp_min(1)
        return ((1 - dice_B) * sizes_BK.sum(1)).sum()
