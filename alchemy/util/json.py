"""JSON of scores, with numpy and torch values as plain numbers."""

from __future__ import annotations

import json
from typing import Any


class NpJsonEncoder(json.JSONEncoder):
    """`json.dumps(scores, cls=NpJsonEncoder)`."""

    def default(self, o: Any) -> Any:
        # numpy's scalars and arrays and torch's tensors have it alike
        if callable(getattr(o, "tolist", None)):
            return o.tolist()
        return super().default(o)
