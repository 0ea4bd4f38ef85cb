"""Ready-made models for text classification, tagging, relation classification, translation and images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.models.classifier import TextClassifier as TextClassifier
    from alchemy.models.image_model import ImageClassifier as ImageClassifier
    from alchemy.models.image_model import Segmenter as Segmenter
    from alchemy.models.relation import RelationClassifier as RelationClassifier
    from alchemy.models.tagger import Tagger as Tagger
    from alchemy.models.translator import Translator as Translator

__getattr__, __dir__ = lazy(
    __name__,
    {
        "TextClassifier": "classifier",
        "ImageClassifier": "image_model",
        "RelationClassifier": "relation",
        "Segmenter": "image_model",
        "Tagger": "tagger",
        "Translator": "translator",
    },
)
