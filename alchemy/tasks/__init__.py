"""Ready-made tasks for texts and images: classification, tagging, relations, translation and segmentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.tasks.classification import Classification as Classification
    from alchemy.tasks.image_classification import ImageClassification as ImageClassification
    from alchemy.tasks.relation import Relation as Relation
    from alchemy.tasks.segmentation import Segmentation as Segmentation
    from alchemy.tasks.tagging import Tagging as Tagging
    from alchemy.tasks.translation import Translation as Translation

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Classification": "classification",
        "ImageClassification": "image_classification",
        "Relation": "relation",
        "Segmentation": "segmentation",
        "Tagging": "tagging",
        "Translation": "translation",
    },
)
