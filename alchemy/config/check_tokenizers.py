"""Check that the tokenizers, pretrained models and label files named in a config exist."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from alchemy.config.part_slots import Layout, Slot
from alchemy.config.part_source import Gap, Part
from alchemy.config.short_names import names_of
from alchemy.config.signature import parameters_of
from alchemy.constraints import is_import_path
from alchemy.errors import Problem, did_you_mean
from alchemy.optional_packages import explain_missing, is_installed

NO_DOWNLOAD = "models are not downloaded: pass the path of a local folder"
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_LEARNERS = ("TextTask", "Translation")  # tasks that can train a tokenizer on the training data
_KEYS = ("tokenizer", "source_tokenizer", "target_tokenizer")


def check_tokenizers(layout: Layout) -> Iterator[Problem]:
    """Report tokenizer folders and classes, pretrained models and label files that cannot be found."""
    for slot in layout.slots:
        if not slot.ours:
            continue
        for key in _KEYS:
            value = slot.table.get(key)
            if isinstance(value, str) and not os.path.isdir(os.path.expanduser(value)):
                yield from (
                    _check_class(layout, slot, key, value) if is_import_path(value) else _no_tokenizer(slot, key, value)
                )
        path, labels = slot.table.get("path"), slot.table.get("labels")
        if slot.is_a("Pretrained") and isinstance(path, str) and not os.path.isdir(os.path.expanduser(path)):
            hint = _suggest_neighbor(path, folders=True) or (NO_DOWNLOAD if is_hub_name(path) else "")
            yield slot.problem(f"pretrained model folder not found: {path!r}", "path", hint=hint)
        if isinstance(labels, str) and not os.path.isfile(os.path.expanduser(labels)):
            names = ", ".join(f'"{name.strip()}"' for name in labels.split(",") if name.strip())
            several = f"use a list: labels = [{names}]" if "," in labels else ""
            hint = (
                several or _suggest_neighbor(labels) or "create a file with one label per line, or use a list of labels"
            )
            yield slot.problem(f"label file not found: {labels!r}", "labels", hint=hint)


def is_hub_name(text: str) -> bool:
    """Return whether a string looks like a Hugging Face model name rather than a path.

    >>> [is_hub_name(name) for name in ("bert-base-uncased", "google/mt5-small", "./bert", "/a/b", "a/b/c")]
    [True, True, False, False, False]
    """
    return _HUB_NAME.fullmatch(text) is not None and not os.path.isdir(text.partition("/")[0])


def _no_tokenizer(slot: Slot, key: str, value: str) -> Iterator[Problem]:
    learns = slot.is_a(*_LEARNERS)
    near = did_you_mean(value, names_of("tokenizer")) if learns and value.isidentifier() else ""
    hint = near or _suggest_neighbor(value, folders=True)
    if not hint:
        hint = NO_DOWNLOAD if is_hub_name(value) else "pass the path of a folder"
        hint += f', or train a tokenizer on the training data: {key} = "alchemy.text.Words"' if learns else ""
    yield slot.problem(f"tokenizer folder not found: {value!r}", key, hint=hint)


def _check_class(layout: Layout, slot: Slot, key: str, dotted: str) -> Iterator[Problem]:
    """Check a tokenizer class that is trained on the training data."""
    if not slot.is_a(*_LEARNERS):
        return
    part = layout.sources.look(dotted, base="Tokenizer")
    if isinstance(part, Gap):
        if part.reason != "unreadable":
            yield slot.problem(f"unknown {key} {dotted!r}: {part.message}", key, hint=part.hint)
        return
    if part.complete and "tokenizer" not in part.kinds:
        yield slot.problem(f"{dotted!r} is not a tokenizer", key, hint="`alchemy parts tokenizer` lists the tokenizers")
        return
    for package in part.attribute("packages") or ():
        if not is_installed(package):
            text, hint = explain_missing(package, part.name)
            yield slot.problem(text, key, hint=hint)
    yield from _check_learn_options(slot, part, key)


def _check_learn_options(slot: Slot, part: Part, key: str) -> Iterator[Problem]:
    """Check the `learn` options; `train` forwards undeclared options to `from_counts` and the constructor."""
    names: list[str] = []
    takes_any = True
    for method in ("train", "from_counts"):
        found = part.method(method)
        if found and found[0].module and takes_any:
            params, takes_any, _ = parameters_of(found[1], found[0].module)
            names += [param.name for param in params[2:]]  # skip the class and the text (or its counts)
    if takes_any:
        names, takes_any = names + [param.name for param in part.params], part.takes_kwargs or not part.readable
    if part.complete and part.method("train") is None:
        yield slot.problem(f"{part.name} cannot be trained on text", key, hint="pass a folder, or a table of its files")
        return
    for name in slot.table.table("learn"):
        if name not in names and not takes_any:
            hint = did_you_mean(name, names) or f"it takes {', '.join(names) or 'nothing'}"
            yield slot.problem(f"{part.name} has no training option {name!r}", "learn", hint=hint)


def _suggest_neighbor(path: str, *, folders: bool = False) -> str:
    """Suggest an existing file or folder with a similar name."""
    folder, name = os.path.split(os.path.expanduser(path).rstrip("/"))
    try:
        names = [entry.name for entry in os.scandir(folder or ".") if entry.is_dir() == folders]
    except OSError:
        return ""
    return did_you_mean(name, names)
