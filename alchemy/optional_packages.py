"""Optional packages: which extra installs each, and the error where one is missing.

A part declares what it imports, `packages = ("sacrebleu",)`, so that `alchemy check` finds what is missing without
importing the part; the code that uses a package gets it from `import_package`.
"""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec
from typing import Any

from alchemy.errors import AlchemyError

# by the name that is imported; the extras are those of pyproject.toml
EXTRAS = {
    "tensorboard": "board",
    "pyarrow": "data",
    "zstandard": "data",
    "tokenizers": "text",
    "sentencepiece": "text",
    "transformers": "text",
    "sacremoses": "text",
    "sklearn": "score",
    "seqeval": "score",
    "sacrebleu": "score",
    "scipy": "score",
    "matplotlib": "score",
    "PIL": "image",
    "accelerate": "dist",
    "ctranslate2": "export",
}
_PUBLISHED_AS = {"sklearn": "scikit-learn", "PIL": "pillow"}
_BY_SUFFIX = {".parquet": "pyarrow", ".zst": "zstandard"}


def import_package(name: str, needed_by: str) -> Any:
    """An optional package, or a module of one, imported when it is used."""
    try:
        with warnings.catch_warnings(action="ignore"):  # what a library says of its own imports is nothing to a user
            return importlib.import_module(name)
    except ImportError as error:
        text, hint = explain_missing(name, needed_by)
        raise AlchemyError(text, hint=hint) from error


def explain_missing(name: str, needed_by: str) -> tuple[str, str]:
    """What is wrong where a package is missing, and how to install it.

    >>> explain_missing("sklearn.metrics", "F1")
    ('F1 needs the package scikit-learn', "pip install 'alchemy[score]'")
    """
    top = name.partition(".")[0]
    package = _PUBLISHED_AS.get(top, top)
    return f"{needed_by} needs the package {package}", how_to_install(top)


def how_to_install(name: str) -> str:
    """The command that installs a package, by its import name."""
    return f"pip install 'alchemy[{EXTRAS[name]}]'" if name in EXTRAS else f"pip install {name}"


def is_installed(name: str) -> bool:
    """Whether a package can be found; it is not imported."""
    try:
        return find_spec(name.partition(".")[0]) is not None  # to find a module of it would import it
    except (ImportError, ValueError):
        return False


def package_of_file(path: str) -> str:
    """The optional package that reads files of this name, if any.

    >>> package_of_file("a/b.parquet"), package_of_file("a.csv")
    ('pyarrow', '')
    """
    return next((name for suffix, name in _BY_SUFFIX.items() if path.lower().endswith(suffix)), "")
