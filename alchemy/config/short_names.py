"""Expand the short names of alchemy's parts: `type = "AdamW"` in `[optim]` means `"alchemy.optim.AdamW"`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from functools import lru_cache

from alchemy.config.known_tables import DEFAULT_TYPES, LISTS, SECTIONS
from alchemy.config.module_files import locate, read_module
from alchemy.config.name_lookup import Class, lookup
from alchemy.config.part_source import KINDS, Part, find, look
from alchemy.config.tree import Array, Document, Table
from alchemy.errors import Problem, closest, did_you_mean
from alchemy.synonyms import architecture

_PIPES = (
    "processors",
    "openers",
    "itr",
    "lst",
    "encode",
    "pairs",
    "label_ids",
    "windows",
    "cache",
    "corpora",
    "image_transforms",
)

# the modules that contain the parts of each kind, as printed by `alchemy parts`
HOMES = {
    "runner": ("alchemy.runner",),
    "plugin": ("alchemy.plugins", "alchemy.web.plugins"),
    "task": ("alchemy.tasks", "alchemy.task"),
    "model": ("alchemy.models",),
    "optim": ("alchemy.optim",),
    "sched": ("alchemy.sched",),
    "backward": ("alchemy.update", "alchemy.legacy.backward"),
    "loss": ("alchemy.nn.losses", "alchemy.nn.pixel_loss"),
    "data pipe": tuple(f"alchemy.pipeline.{name}" for name in _PIPES),
    "output pipe": ("alchemy.pipeline.output",),
    "eval pipe": ("alchemy.pipeline.eval", "alchemy.pipeline.report", "alchemy.pipeline.error_analysis"),
    "sched pipe": ("alchemy.pipeline.sched", "alchemy.pipeline.freeze", "alchemy.pipeline.log_media"),
    "stop rule": ("alchemy.stop",),
    "checkpoint": ("alchemy.checkpoint.keeper",),
    "precision": ("alchemy.precision",),
    "average": ("alchemy.average",),
    "ddp": ("alchemy.launch.process_group",),
    "capture": ("alchemy.capture",),
    "collate": ("alchemy.data.collate", "alchemy.data.collate_images"),
    "column": ("alchemy.data.columns",),
    "image transform": ("alchemy.images.transforms",),
    "tokenizer": ("alchemy.text",),
    "encoder": ("alchemy.models.encoders", "alchemy.models.fasttext", "alchemy.models.pretrained"),
    "head": ("alchemy.models.heads",),
    "network": ("alchemy.nn.transformer", "alchemy.nn.lstm"),
    "search": ("alchemy.generate",),
}

# networks for images, which are plain modules without a base class
NETWORKS = tuple(f"alchemy.nn.{name}" for name in ("convnet", "resnet", "convnext", "unet"))

# keys in the tables of alchemy's parts whose value is a part, or a list or table of parts
_INNER = {
    **{key: key for key in ("encoder", "head", "net", "network", "search", "tokenizer")},
    "source_tokenizer": "tokenizer",
    "target_tokenizer": "tokenizer",
    "collate_fn": "collate",
    "fields": "column",
    "pipes": "data pipe",
    "transforms": "image transform",
    "augment": "image transform",
}
_AS_TEXT = ("tokenizer", "collate")  # kinds of part that a key may name without a table
_BASES = {base for bases in KINDS.values() for base in bases} - set(DEFAULT_TYPES.values())
_MODULES = ("loss", "net")  # kinds that include plain modules
_TORCH = {"optim": "torch.optim", "loss": "torch.nn"}
_NOUNS = {  # kinds that messages do not call by the name of their table
    "optim": "optimizer",
    "sched": "schedule",
    "sched pipe": "schedule pipe",
    "backward": "backward handler",
    "collate": "collate function",
    "net": "image network",
}


def expand_names(doc: Document, notes: list[Problem], roots: Sequence[str] = (".",)) -> None:
    """Replace the short names in a config with import paths; unknown names are kept for `check` to report."""
    _expand_key(doc, "runner", "runner")
    for section, (kind, _) in SECTIONS.items():
        table = doc.get(section)
        if kind and isinstance(table, Table) and (section != "criterion" or _is_loss(doc, roots)):
            several = kind == "optim" and "type" not in table
            for inner in table.values() if several else (table,):
                _expand(inner, kind, section, notes)
    for path, kind in LISTS.items():
        head, _, key = path.rpartition(".")
        _expand((doc.table(head) if head else doc).get(key), kind, path, notes)
    task = doc.table("task")
    _expand_key(task.table("data"), "processor", "data pipe")
    for split, table in task.table("datasets").items():
        if isinstance(table, Table):
            _expand_inside(table, f"task.datasets.{split}", [])  # a task may use its own names here


def resolve_name(word: str, kind: str) -> str:
    """Return the import path of a short name, or the name itself if it is unknown or ambiguous.

    >>> resolve_name("AdamW", "optim"), resolve_name("Map", "data pipe"), resolve_name("src.Own", "optim")
    ('alchemy.optim.AdamW', 'Map', 'src.Own')
    """
    found = _paths_of(word, kind) if word.isidentifier() else []
    return found[0] if len(found) == 1 else word


def explain_name(word: str, kind: str) -> tuple[str, str]:
    """Return a message and a hint that explain why a short name does not refer to a part of this kind."""
    paths = _paths_of(word, kind) if word.isidentifier() else []
    if paths:
        return f"{word!r} is ambiguous: {len(paths)} parts have this name", f"write {' or '.join(map(repr, paths))}"
    message, own = f"alchemy has no {_noun(kind)} {word!r}", f"refer to your own part as 'src.module.{word or 'Class'}'"
    package = _TORCH.get(kind)
    if package and word.isidentifier() and isinstance(lookup(package, word, ()), Class):
        return message, f"write '{package}.{word}'"
    if kind == "model" and (written := architecture(word)):
        return message, f"for text, write {written}"
    others = [(other, path) for other in HOMES for path in _paths_of(word, other)] if word.isidentifier() else []
    if others:
        return message, f"{others[0][1]!r} is {with_article(others[0][0])}"
    near = did_you_mean(word, names_of(kind))
    return message, near or f"`alchemy parts {shlex.quote(kind)}` lists what is available; {own}"


def with_article(*kinds: str) -> str:
    """Return one or more kinds as a phrase with an article.

    >>> with_article("optim"), with_article("model", "task")
    ('an optimizer', 'a model and task')
    """
    words = " and ".join(map(_noun, kinds))
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def _noun(kind: str) -> str:
    return _NOUNS.get(kind, kind)


def as_table(key: str, value: object) -> str:
    """Return a hint if the value of a key is the name of a part instead of its table, e.g. `head = "CNN"`."""
    if key not in _INNER or not isinstance(value, str):
        return ""
    names = names_of(_INNER[key])
    name = value if value in names else closest(value, names) or ".."
    return f'write {key} = {{ type = "{name}" }}'


@lru_cache(maxsize=32)
def names_of(kind: str) -> tuple[str, ...]:
    """Return the short names of the parts of a kind, for hints; base classes are excluded."""
    names = dict.fromkeys(name for home in _homes(kind) for name in _public_names(home))
    return tuple(name for name in names if any(p.registered or kind in _MODULES for p in _parts_of(name, kind)))


def _paths_of(word: str, kind: str) -> list[str]:
    return [part.path for part in _parts_of(word, kind)]


@lru_cache(maxsize=1024)  # alchemy's source does not change while a process runs
def _parts_of(word: str, kind: str) -> tuple[Part, ...]:
    """Return the parts of a kind with this name; a class exported by several modules counts once."""
    found: dict[str, Part] = {}
    for home in _homes(kind):
        part = look(f"{home}.{word}", ()) if word in _public_names(home) else None
        fits = isinstance(part, Part) and (kind in part.kinds or (kind == "net" and part.is_plain_model))
        if isinstance(part, Part) and fits and f"{part.module}.{part.name}" not in _BASES:
            found.setdefault(f"{part.module}.{part.name}", part)
    return tuple(found.values())


def _homes(kind: str) -> tuple[str, ...]:
    return NETWORKS if kind == "net" else HOMES.get(kind, ())


@lru_cache(maxsize=64)
def _public_names(home: str) -> tuple[str, ...]:
    place = locate(home, ())
    module = read_module(home, place) if place else None
    return tuple(name for name in module.public() if name[:1].isupper()) if module else ()


# -- places in a config that name a part


def _is_loss(doc: Document, roots: Sequence[str]) -> bool:
    """Return whether `[criterion]` names a part; an old-style model may use its own names there instead."""
    part = find(str(doc.table("model").get("type", "")), roots)
    if part is None:
        return False
    return not part.old_style or (part.is_plain_model and part.complete)


def _expand(node: object, kind: str, section: str, notes: list[Problem]) -> None:
    """Expand the part in a table, or the parts in a list of tables, including nested parts."""
    if isinstance(node, Array):
        for index, item in enumerate(node):
            _expand(item, kind, f"{section}.{index}", notes)
    elif isinstance(node, Table):
        _expand_key(node, "type", kind)
        if str(node.get("type", "")).startswith("alchemy."):
            _expand_inside(node, section, notes)


def _expand_inside(table: Table, section: str, notes: list[Problem]) -> None:
    """Expand names in the table of a part or split, for the keys that alchemy knows."""
    for key, kind in _INNER.items():
        value, here = table.get(key), f"{section}.{key}"
        if isinstance(value, str) and kind in _AS_TEXT and not os.path.isdir(value):
            _expand_key(table, key, kind)
        elif key == "fields" and isinstance(value, Table):
            for name, item in value.items():
                _expand(item, kind, f"{here}.{name}", notes)
        elif isinstance(value, Table | Array):
            _expand(value, kind, here, notes)
            notes.extend(_report_unknown(value, kind, here))


def _report_unknown(node: Table | Array, kind: str, section: str) -> Iterator[Problem]:
    """Report an unknown short name nested in a part; `check` reports unknown names in sections."""
    if isinstance(node, Table) and isinstance(word := node.get("type"), str) and "." not in word:
        message, hint = explain_name(word, kind)
        yield Problem(message, node.where("type"), section, hint)
    elif isinstance(node, Array) and kind == "image transform":
        for index, item in enumerate(node):
            if isinstance(item, Table):
                yield from _report_unknown(item, kind, f"{section}.{index}")


def _expand_key(table: Table, key: str, kind: str) -> None:
    word = table.get(key)
    full = resolve_name(word, kind) if isinstance(word, str) else word
    if full != word:
        table.put(key, full, table.origin_of(key))
