"""A trained model as a file that other programs read."""

from __future__ import annotations

# what `--format` takes, and where the class of each is: an Exporter, imported when it is asked for
EXPORTERS = {"ctranslate2": "alchemy.export.ctranslate2.CTranslate2"}
