"""JSON encoding of numpy and torch values."""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class _Listable(Protocol):
    """A numpy scalar or array, or a torch tensor."""

    def tolist(self) -> Any: ...


class NpJsonEncoder(json.JSONEncoder):
    """A JSON encoder for numpy and torch values: `json.dumps(scores, cls=NpJsonEncoder)`."""

    def default(self, o: object) -> Any:
        return o.tolist() if isinstance(o, _Listable) else super().default(o)
