"""Save and restore the complete state of a run, atomically."""

from alchemy.lazy import lazy

_HOMES = {
    "Checkpoints": "keeper",
    "Manifest": "manifest",
    "Where": "manifest",
    "checkpoints": "manifest",
    "newest_valid": "manifest",
    "read": "files",
    "verify": "manifest",
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
