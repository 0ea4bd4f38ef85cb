"""Secrets in a config: which settings are secret, how they are masked on disk, and which values no log shows.

A masked value is `***pbkdf2:<salt>:<digest>`, followed by `:NAME` if it was read from the environment variable NAME.
The digest tells whether a value is the one that a run had; the value itself is not stored.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from alchemy.config.line_numbers import Path
from alchemy.config.tree import Document, Table
from alchemy.config.values import dotted_key
from alchemy.errors import Problem

NAMES = ("token", "auth_token", "access_token", "hf_token")
ENDINGS = ("password", "secret", "api_key")
MASK = "***"
SHORTEST = 4  # a shorter value is part of too many words to be replaced in texts
ROUNDS = 200_000  # slows down guessing a short password from its digest
MOST = 20  # secrets of a config that have a digest: each takes a tenth of a second
ANYWHERE = "*"  # in the place of a variable: from none, and a secret under any key
_NUMBERS = {int, float, bool}
_Node = dict[str, Any] | list[Any]
_FORM = re.compile(r"\*\*\*(?:pbkdf2:([0-9a-f]{32}):([0-9a-f]{64})(?::(.+))?)?")
_REFERENCE = re.compile(r"\$\{[^{}]*\}")  # which is no secret, though what it refers to may be one
_AnyTable = TypeVar("_AnyTable", bound=Table)

_known: dict[str, str] = {}  # the secret values of this process, and the environment variables they came from


def is_secret_name(name: object) -> bool:
    """Whether a setting of this name is a secret.

    >>> [name for name in ("hf_token", "OPENAI_API_KEY", "pad_token", "use_auth_token") if is_secret_name(name)]
    ['hf_token', 'OPENAI_API_KEY']
    """
    name = str(name).lower().replace("-", "_")
    return name in NAMES or name.endswith(ENDINGS)


def is_secret_recipe(path: Path, recipe: Mapping[str, Any]) -> bool:
    """Whether the setting at `path`, read from an environment variable, is a secret by its name or the variable's."""
    variable = str(recipe.get("name"))
    # unlike a setting, such as pad_token, a variable that ends so always holds a secret
    return is_secret_name(setting_of(path)) or is_secret_name(variable) or variable.lower().endswith("_token")


# -- one value
@functools.lru_cache(maxsize=256)  # one salt for each value, so that a config is masked the same way every time
def mask(value: str, variable: str = "") -> str:
    variable = "" if variable == ANYWHERE else variable
    salt = os.urandom(16).hex()
    return f"{MASK}pbkdf2:{salt}:{_digest(salt, value)}" + (f":{variable}" if variable else "")


def is_masked(value: object) -> bool:
    return isinstance(value, str) and value.startswith(MASK) and _FORM.fullmatch(value) is not None


def matches(masked: str, value: object) -> bool:
    """Whether `value` is the one that was masked."""
    form = _FORM.fullmatch(masked)
    return form is not None and form[1] is not None and isinstance(value, str) and _digest(form[1], value) == form[2]


@functools.lru_cache(maxsize=256)
def _digest(salt: str, value: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", value.encode(), bytes.fromhex(salt), ROUNDS).hex()


# -- a config
def note_secrets(doc: Document) -> None:
    """Notes the secrets of a document, masked or not, before the command line replaces them."""
    for _, _, path, value in _strings(doc):
        if is_masked(value):
            doc.masked.setdefault(dotted_key(path), value)
        elif _is_secret(path, value) and not _REFERENCE.fullmatch(value):
            doc.secrets.setdefault(value, _known.get(value, ""))
    remember(doc.secrets)


def settle_secrets(doc: Document) -> None:
    """Puts back the masked values of a document that are at hand, and notes all of its secrets.

    That is the environment variable that the masked value names, or a secret that this process knows already, if the
    digest agrees: a record cannot make a part read any other variable.
    """
    note_secrets(doc)
    for node, key, path, value in _strings(doc) if doc.masked else ():
        form = doc.masked.get(dotted_key(path), "")
        found = _find(form) if is_masked(value) and len(doc.masked) <= MOST else value
        if form and found is not None and not is_masked(found):  # a secret whatever its name: it was masked
            _replace(node, key, found)
            named = is_secret_name(setting_of(path))
            doc.secrets[found] = _variable_of(form) or _known.get(found) or ("" if named else ANYWHERE)
    remember(doc.secrets)


def keep_secret(doc: Document, path: Path, value: object, made: object) -> None:
    """Keeps secret, under any key, what a reference has made of the value at `path`, if that is a secret."""
    rows = [(path, value)] if isinstance(value, str) else []
    if isinstance(value, dict | list):
        rows = [(inner, text) for _, _, inner, text in _strings(value, path)]
    found = {text: _known.get(text) or ANYWHERE for inner, text in rows if text and _is_secret(inner, text)}
    if found and isinstance(made, str):
        found.setdefault(made, ANYWHERE)
    found = {text: variable for text, variable in found.items() if not is_masked(text)}
    doc.secrets |= found
    remember(found)


def remember(secrets: Mapping[str, str]) -> None:
    """Lets no log of this process show these values; each comes with its environment variable, or an empty name."""
    for value, variable in secrets.items():
        if value not in _known or (variable and not (variable == ANYWHERE and _known[value])):
            _known[value] = variable
            _pattern.cache_clear()


def mask_secrets(table: _AnyTable) -> _AnyTable:
    """A copy of a config in which secrets are masked; one that was read masked gets the same form again."""
    twin = copy.deepcopy(table)
    former = list(table.masked.values())[:MOST] if isinstance(table, Document) else []
    found = [row for row in _strings(twin) if _is_secret(row[2], row[3]) and not is_masked(row[3])]
    for count, (node, key, _, value) in enumerate(found):
        form = next((form for form in former if matches(form, value)), None) if count < MOST else MASK
        _replace(node, key, form or mask(value, _known.get(value, "")))
    return twin


def as_written(doc: Document) -> dict[str, Any]:
    """The values of a config as its file has them: masked where they were."""
    data = doc.plain()
    for node, key, path, value in _strings(data):
        if _is_secret(path, value) and not is_masked(value):
            _replace(node, key, doc.masked.get(dotted_key(path), MASK))
    return data


def without_secrets(table: Table) -> dict[str, Any]:
    """The values of a config, every secret the same text: a hash of them tells nothing about the secrets."""
    data = table.plain()
    for node, key, path, value in _strings(data):
        if _is_secret(path, value):
            _replace(node, key, MASK)
    return data


def missing_secrets(doc: Document) -> list[Problem]:
    """What is wrong with a config that still has masked values: no part can use them."""
    problems = []
    for node, key, path, value in _strings(doc) if doc.masked else ():
        if is_masked(value):
            name, variable = dotted_key(path), _variable_of(value)
            where = node.where(key) if isinstance(node, Table) else doc.where(str(path[0]))
            text = f"{name} is a secret, which the record keeps only as a digest, and no matching value was given"
            export = f"export {variable}=.., or " if variable else ""
            problems.append(Problem(text, where, hint=f"{export}give the value that the run had: --set {name}=.."))
    return problems


def changed_secrets(doc: Document) -> list[str]:
    """The settings that were masked when the document was read, and now have another value than was masked."""
    values = {dotted_key(path): value for _, _, path, value in _strings(doc)}
    return [key for key, form in doc.masked.items() if key in values and not _agree(form, values[key])]


def conceal(key: str, one: object, other: object) -> tuple[object, object, bool]:
    """Two values of a setting as they may be shown, and whether they are the same secret, as far as one can tell."""
    same = isinstance(one, str) and isinstance(other, str) and _agree(one, other)
    name = key.rpartition(".")[2]
    return mask_value(name, one), mask_value(name, other), same


def mask_value(name: str, value: object) -> object:
    """The value of a setting, or the mask of a secret; a text that is nothing but a reference is no secret."""
    texts = _strings(value, (name,)) if isinstance(value, list) else ()
    hidden = any(_is_secret(path, text) for _, _, path, text in texts)
    if isinstance(value, str) and value:
        hidden = _is_secret((name,), value) and not _REFERENCE.fullmatch(value)
    return MASK if hidden else value


def _agree(one: str, other: str) -> bool:
    """Two masked values have different salts, and cannot be compared: they count as the same."""
    if is_masked(one) and is_masked(other):
        return True
    return one == other or matches(one, other) or matches(other, one)


def _strings(node: _Node, path: Path = ()) -> Iterator[tuple[_Node, Any, Path, str]]:
    """Every text in a config that is not empty: what holds it, its key there, its path."""
    if isinstance(node, list) and _NUMBERS.issuperset(map(type, node)):
        return  # at once, since it may be long
    for key, item in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(item, str):
            if item:
                yield node, key, (*path, key), item
        elif isinstance(item, dict | list):
            yield from _strings(item, (*path, key))


def _is_secret(path: Path, value: str) -> bool:
    return is_secret_name(setting_of(path)) or bool(_known.get(value)) or is_masked(value)


def setting_of(path: Path) -> str:
    """The name of a setting; the elements of a list share one."""
    return next((key for key in reversed(path) if isinstance(key, str)), "")


def _replace(node: _Node, key: Any, value: str) -> None:
    if isinstance(node, Table):
        node.put(key, value, node.origin_of(key))
    else:
        node[key] = value


def _variable_of(masked: str) -> str:
    form = _FORM.fullmatch(masked)
    return (form[3] if form else None) or ""


def _find(masked: str) -> str | None:
    """The value of a masked secret, where the environment or this process has it."""
    variable = _variable_of(masked)
    with contextlib.suppress(ValueError):  # a record may name anything
        value = os.environ.get(variable, "").strip()
        if value and matches(masked, value):
            remember({value: variable})
            return value
    return next((value for value in list(_known) if matches(masked, value)), None)


# -- texts
def hide(text: str) -> str:
    """A text without the secret values of this process."""
    pattern = _pattern() if _known else None
    return text if pattern is None else pattern.sub(MASK, text)


def holds_secret(text: str) -> bool:
    return hide(text) != text


def hide_words(words: Iterable[str]) -> list[str]:
    """The words of a command line without secrets: `--set hub.token=..`, `--set=hub.token=..`, `--api-key ..`."""
    mask_value: list[str] = []
    for word in words:
        after_option = bool(mask_value) and mask_value[-1].startswith("--") and is_secret_name(mask_value[-1][2:])
        mask_value.append(MASK if after_option and not word.startswith("--") else hide(_hide_setting(word)))
    return mask_value


def _hide_setting(word: str) -> str:
    option = "--set=" if word.startswith("--set=") else ""
    left, _, value = word.removeprefix(option).partition("=")
    name = left.rpartition(".")[2].strip(" \"'-")
    return f"{option}{left}={MASK}" if value.strip() and is_secret_name(name) else word


@functools.lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str] | None:
    values = [value for value in list(_known) if len(value) >= SHORTEST]
    spelt: Sequence[str] = sorted({spelling for value in values for spelling in _spellings(value)}, key=len)
    return re.compile("|".join(map(re.escape, reversed(spelt)))) if spelt else None


def _spellings(value: str) -> set[str]:
    """A value as texts show it: as it is, and inside the quotes of Python and JSON."""
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
