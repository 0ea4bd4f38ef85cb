"""Optional packages, the extras that install them, and the error for a missing package.

A part declares the packages it imports as `packages = ("sacrebleu",)`, so that `alchemy check` reports missing packages
without importing the part; code that uses a package calls `import_package`.
"""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec
from typing import Any

from alchemy.errors import AlchemyError

# import name -> extra in pyproject.toml
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
    "pynvml": "gpu",
    "sqlalchemy": "track",
    "psycopg": "track",
    "optuna": "sweep",
    "cmaes": "sweep",
    "ray": "ray",
    "submitit": "slurm",
}
_PUBLISHED_AS = {"sklearn": "scikit-learn", "PIL": "pillow", "pynvml": "nvidia-ml-py"}
_BY_SUFFIX = {".parquet": "pyarrow", ".zst": "zstandard"}


def import_package(name: str, needed_by: str) -> Any:
    """Import an optional package or one of its modules."""
    try:
        with warnings.catch_warnings(action="ignore"):  # a library's import warnings do not concern the user
            return importlib.import_module(name)
    except ImportError as error:
        text, hint = explain_missing(name, needed_by)
        raise AlchemyError(text, hint=hint) from error


def explain_missing(name: str, needed_by: str) -> tuple[str, str]:
    """Return the error message for a missing package and the command to install it.

    >>> explain_missing("sklearn.metrics", "F1")
    ('F1 needs the package scikit-learn', "pip install 'alchemy[score]'")
    """
    top = name.partition(".")[0]
    package = _PUBLISHED_AS.get(top, top)
    return f"{needed_by} needs the package {package}", how_to_install(top)


def how_to_install(name: str) -> str:
    """Return the command that installs a package, given its import name."""
    return f"pip install 'alchemy[{EXTRAS[name]}]'" if name in EXTRAS else f"pip install {name}"


def is_installed(name: str) -> bool:
    """Return whether a package is installed, without importing it."""
    try:
        return find_spec(name.partition(".")[0]) is not None  # looking up a submodule would import the package
    except (ImportError, ValueError):
        return False


def package_of_file(path: str) -> str:
    """Return the optional package needed to read a file, or an empty string.

    >>> package_of_file("a/b.parquet"), package_of_file("a.csv")
    ('pyarrow', '')
    """
    return next((name for suffix, name in _BY_SUFFIX.items() if path.lower().endswith(suffix)), "")
