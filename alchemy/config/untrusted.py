"""Vet the config of an untrusted record by reading it, before anything is imported."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Iterator
from typing import Any

from alchemy.config.known_tables import NAMES_CODE
from alchemy.config.line_numbers import Path
from alchemy.config.module_files import locate, read_module
from alchemy.config.name_lookup import Class, Gap, lookup
from alchemy.config.part_source import Part, find
from alchemy.config.tree import Array, Document, Origin, Table, children
from alchemy.config.values import dotted_key
from alchemy.constraints import Inside, is_import_path
from alchemy.errors import Problem, is_library
from alchemy.trust import CONFIG, record_of

CODE_KEYS = ("type", "runner", *NAMES_CODE)  # keys whose value is imported by alchemy's parts

# library classes: the package that configs import them from, and the prefix of their source module
CLASSES = {"torch.nn": "torch.nn.modules.", "torch.optim": "torch.optim."}
TRANSFORMERS = re.compile(r"transformers\.[A-Z]\w*(Model|For[A-Z]\w*)")
TORCHVISION, TIMM = "torchvision.models", "timm.create_model"

_LOSSES = """binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cross_entropy ctc_loss
gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss
triplet_margin_loss"""
_ACTIVATIONS = """celu elu gelu glu hardsigmoid hardswish hardtanh leaky_relu log_softmax logsigmoid mish prelu relu
relu6 selu sigmoid silu softmax softmin softplus softshrink softsign tanh tanhshrink"""
_SAMPLERS = "BatchSampler RandomSampler SequentialSampler SubsetRandomSampler WeightedRandomSampler default_collate"

# names allowed individually
NAMES = frozenset(
    [f"builtins.{name}" for name in ("bool", "float", "int", "len", "str")]
    + [f"torch.nn.functional.{name}" for name in f"{_LOSSES} {_ACTIVATIONS}".split()]
    + [f"torch.utils.data.{name}" for name in _SAMPLERS.split()]
    + [TIMM, "alchemy.pipeline.processors.hot", "alchemy.generate.Limits"]
)

PICKLES = (".bin", ".ckpt", ".dill", ".joblib", ".pickle", ".pkl", ".pt", ".pth")
_HUBS = ("hf-hub:", "hf_hub:", "local-dir:")  # prefixes with which timm.create_model loads pickles
# values that make a library run code
UNSAFE = {"trust_remote_code": True, "allow_pickle": True, "weights_only": False}
COMPILER = ("backend", "options")  # options of torch.compile that select programs to start

DEEPEST = 20  # maximum number of components in an import path
LOADS = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")  # keys with which timm loads pickles

# keys with paths to write to or to copy into the record, and the parts that have these keys
PATHS = {"log_dir": "FileLogger", "paths": "Backup"}


def vet(doc: Document, user_dir: str) -> list[Problem]:
    """Return a problem for each value of an untrusted config that is not allowed."""
    found: list[Problem] = []
    for path, value, origin in _values(doc):
        why = _rejection_reason(doc, path, value, user_dir) if origin.foreign else ""
        if why:
            found.append(_refusal(why, origin, path, first=not found))
    return found


def reject_recipes(table: Table) -> list[Problem]:
    """Reject recipes and bases, which refer to the environment and other files: a record contains only plain values."""
    found: list[Problem] = []
    for path, value, origin in _values(table):
        names_file = path == ("base",) or (path[0] == "variant" and path[2:] == ("base",))
        if names_file or (path[-1] == "dyn" and path[0] != "sweep"):
            text = f"{path[-1]} = {value!r}: the config of a record may contain only plain values"
            found.append(_refusal(text, origin, path, replace=False, first=not found))
    for layer in (table, *table.table("variant").values()):
        if isinstance(layer, Table):
            layer.pop("base", None)
    return found


def _refusal(why: str, origin: Origin, path: Path, *, replace: bool = True, first: bool) -> Problem:
    """Return the error for a value of an untrusted config; the first one explains how to trust the config."""
    folder, name = os.path.split(origin.file)
    command = f"alchemy trust {shlex.quote((folder or '.') if name == CONFIG else origin.file)}"
    trust = f"this config was not written by one of your runs: read {origin.file}, then trust it with `{command}`"
    ways = [trust] * first + [f"replace the value with --set {dotted_key(path)}=.."] * replace
    return Problem(why, str(origin), dotted_key(path[:-1]), ", or ".join(ways))


def _values(node: Table | Array, path: Path = ()) -> Iterator[tuple[Path, Any, Origin]]:
    """Yield every value below a table, including tables and lists, with its path and origin."""
    for key, item in children(node):
        here = (*path, key)
        yield here, item, node.origin_of(str(key)) if isinstance(node, Table) else node.origin
        if isinstance(item, Table | Array):
            yield from _values(item, here)


def _rejection_reason(doc: Document, path: Path, value: Any, user_dir: str) -> str:
    """Return why an untrusted value is rejected, or "" if it is allowed."""
    key = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    if path[:2] == ("task", "datasets") and len(path) == 3 and not re.fullmatch(r"[\w-]+", key):
        return f"the split name {key!r} would become part of file names"
    if key in UNSAFE and value is not None and bool(value) is UNSAFE[key] and not isinstance(value, Table | Array):
        return f"{key} = {str(value).lower()} would run code from a file"
    if key in COMPILER and path[:2] == ("precision", "compile") and len(path) == 3:
        return f"{key} of torch.compile chooses the programs that it starts"
    if key in LOADS and _kind(doc, path) == TIMM:
        return f"{key} names weights that may be pickles, which can run code"
    if isinstance(value, str):
        return _text_rejection_reason(doc, path, key, value, user_dir)
    return ""


def _text_rejection_reason(doc: Document, path: Path, key: str, text: str, user_dir: str) -> str:
    shown = f"{key} = {text!r}"
    if (key in CODE_KEYS and "." in text) or _runs_code(text, user_dir):
        return "" if is_allowed(text, user_dir) else f"{shown} is not allowed in an untrusted config"
    if text.lower().endswith(PICKLES) or text.startswith(_HUBS):
        return f"{shown} may be a pickle, which can run code when it is loaded"
    if key in PATHS and _leaves_directory(text) and _is_a(PATHS[key], doc, path, user_dir):
        return f"{shown} points outside the working directory"
    return ""


def _leaves_directory(text: str) -> bool:
    """Return whether a path leaves the working directory; only its first component may be a symlink."""
    if text.startswith("~") or not Inside().holds(text):
        return True
    first = os.path.realpath(os.path.normpath(text).split(os.sep)[0])
    return not f"{os.path.realpath(text)}{os.sep}".startswith(first.rstrip(os.sep) + os.sep)


def _runs_code(text: str, user_dir: str) -> bool:
    """Return whether importing a string would execute a file; a project's part may import the value of any key."""
    pieces, roots = text.split("."), (os.path.dirname(os.path.abspath(user_dir)),)
    if not is_import_path(text):
        return False
    for end in range(1, min(len(pieces), DEEPEST)):
        place = locate(".".join(pieces[:end]), roots)
        if place is None:
            return False
        if place.file or not place.package:
            return not is_library(place.file) or _has_name(pieces, roots)
    return False


def _has_name(pieces: list[str], roots: tuple[str, ...]) -> bool:
    """Return whether a module may define a name: `test.csv` does not, since Python's `test` package has no `csv`."""
    found = lookup(".".join(pieces[:-1]), pieces[-1], roots)
    return not (isinstance(found, Gap) and found.reason in ("module", "name"))


def _is_a(name: str, doc: Document, path: Path, user_dir: str) -> bool:
    """Return whether the table that contains a value describes a part with this name or a subclass."""
    part = find(_kind(doc, path), (os.path.dirname(os.path.abspath(user_dir)),))
    return part is not None and part.is_a(name)


def _kind(doc: Document, path: Path) -> str:
    """Return the `type` of the table that contains a value, directly or in a list."""
    node: Any = doc
    for step in path[: max(place for place, step in enumerate(path) if isinstance(step, str))]:
        node = node[step]
    return str(node.get("type", "")) if isinstance(node, Table) else ""


def is_allowed(dotted: str, user_dir: str) -> bool:
    """Return whether an untrusted config may use this name, judging by its source."""
    pieces = dotted.split(".")
    if len(pieces) > DEEPEST or not is_import_path(dotted):
        return False
    if dotted in NAMES or TRANSFORMERS.fullmatch(dotted):
        return True
    if pieces[0] == "alchemy":
        part = find(dotted, ())
        return part is not None and _is_part(part)
    head, _, name = dotted.rpartition(".")
    if head == TORCHVISION:
        found = lookup(head, name, (), base="")
        missing = isinstance(found, Gap) and found.reason == "module"  # the check reports the missing library
        return missing or (isinstance(found, Class) and found.dotted.startswith(f"{TORCHVISION}."))
    for package, home in CLASSES.items():
        if head == package or f"{head}.".startswith(home):
            found = lookup(head, name, (), base="")
            return isinstance(found, Class) and isinstance(found.node, ast.ClassDef) and found.dotted.startswith(home)
    return _is_own(pieces, user_dir)


def _is_part(part: Part) -> bool:
    """Return whether this is an alchemy part that a config can name, not just any function or class."""
    trial = part.module.startswith("alchemy.verify.")  # for alchemy's own subprocesses, which these parts may kill
    return part.ours and not part.function and not trial and bool(part.kinds or part.registered)


def _is_own(pieces: list[str], user_dir: str) -> bool:
    """Return whether a class or function is defined in the project's package and not just imported there."""
    package = os.path.abspath(user_dir)
    if pieces[0] != os.path.basename(package) or record_of(package):
        return False
    name = ".".join(pieces[:-1])
    place = locate(name, (os.path.dirname(package),))
    if place is None or not os.path.realpath(place.file).startswith(os.path.realpath(package) + os.sep):
        return False
    module = read_module(name, place)
    if module is None:
        return False
    names = [row[1] for row in module.aliases.get(pieces[-1], [])] or [pieces[-1]]
    return all(isinstance(module.names.get(n), ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) for n in names)
