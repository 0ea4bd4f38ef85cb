"""Export trained models to formats of other programs."""

from __future__ import annotations

# values of `--format`, and the import path of their Exporter, imported on demand
EXPORTERS = {"ctranslate2": "alchemy.export.ctranslate2.CTranslate2"}
