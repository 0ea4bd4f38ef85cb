"""Read the sources of the parts of both projects once, for all forked commands."""

from __future__ import annotations

import tempfile
from pathlib import Path

from alchemy.config.check import check
from alchemy.config.load import prepare_cfg
from tests.tasks import pairs, texts

with tempfile.TemporaryDirectory() as folder:
    for cfg in (texts.config(Path(folder), "classes"), pairs.config(Path(folder), Path(folder))):
        check(prepare_cfg(cfg))
