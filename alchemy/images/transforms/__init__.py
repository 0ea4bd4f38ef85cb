"""All image transforms, under the names that a config uses: `{ type = "alchemy.images.transforms.RandomCrop", .. }`."""

from __future__ import annotations

from alchemy.images.transforms.base import ImageBatch, ImageTransform
from alchemy.images.transforms.color import Autocontrast, ColorJitter, Gamma, RandomErase
from alchemy.images.transforms.crops import CenterCrop, Pad, RandomCrop, RandomResizedCrop, Resize
from alchemy.images.transforms.warps import ElasticDeform, RandomAffine, RandomFlip, RandomRotate

__all__ = [
    "Autocontrast",
    "CenterCrop",
    "ColorJitter",
    "ElasticDeform",
    "Gamma",
    "ImageBatch",
    "ImageTransform",
    "Pad",
    "RandomAffine",
    "RandomCrop",
    "RandomErase",
    "RandomFlip",
    "RandomResizedCrop",
    "RandomRotate",
    "Resize",
]
