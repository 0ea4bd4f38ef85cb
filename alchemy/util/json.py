"""JSON of scores, with numpy and torch values as plain numbers."""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class _Listable(Protocol):
    """Scalars and arrays of numpy, and tensors of torch."""

    def tolist(self) -> Any: ...


class NpJsonEncoder(json.JSONEncoder):
    """`json.dumps(scores, cls=NpJsonEncoder)`."""

    def default(self, o: object) -> Any:
        return o.tolist() if isinstance(o, _Listable) else super().default(o)
