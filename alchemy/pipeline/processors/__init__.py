"""Processors: source pipes that read well-known file formats and start a chain."""

from __future__ import annotations

from alchemy.pipeline.processors.classification import TextClassification
from alchemy.pipeline.processors.fasta import Fasta
from alchemy.pipeline.processors.folder import ImageFolder
from alchemy.pipeline.processors.idx import IdxImages
from alchemy.pipeline.processors.image_masks import ImageMasks
from alchemy.pipeline.processors.image_table import ImageTable
from alchemy.pipeline.processors.labels import hot
from alchemy.pipeline.processors.parallel import ParallelText
from alchemy.pipeline.processors.proteins import Proteins
from alchemy.pipeline.processors.relation import Relation
from alchemy.pipeline.processors.spans import Spans
from alchemy.pipeline.processors.split import SplitById
from alchemy.pipeline.processors.tagging import Tagging

__all__ = [
    "Fasta",
    "IdxImages",
    "ImageFolder",
    "ImageMasks",
    "ImageTable",
    "ParallelText",
    "Proteins",
    "Relation",
    "Spans",
    "SplitById",
    "Tagging",
    "TextClassification",
    "hot",
]
