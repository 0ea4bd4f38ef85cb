"""Ready-made tasks for text classification, tagging, relation classification and translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.tasks.classification import Classification as Classification
    from alchemy.tasks.relation import Relation as Relation
    from alchemy.tasks.tagging import Tagging as Tagging
    from alchemy.tasks.translation import Translation as Translation

__getattr__, __dir__ = lazy(
    __name__,
    {"Classification": "classification", "Relation": "relation", "Tagging": "tagging", "Translation": "translation"},
)
