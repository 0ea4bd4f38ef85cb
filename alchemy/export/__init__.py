"""Export trained models to the formats of other programs."""

from __future__ import annotations

# the values of `--format` and the import paths of their exporters, which are imported on demand
EXPORTERS = {"ctranslate2": "alchemy.export.ctranslate2.CTranslate2"}
