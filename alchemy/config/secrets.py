"""Detect secrets in a config, mask them on disk, and redact them in logs.

A masked value is `***pbkdf2:<salt>:<digest>`, followed by `:NAME` if it was read from the environment variable NAME.
The digest is used to verify that a value is the one used in a run; the value itself is not stored.
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
MIN_LENGTH = 4  # shorter values occur in too many words and are not redacted
ROUNDS = 200_000  # slows down guessing short passwords from their digest
MAX_DIGESTS = 20  # maximum number of secrets with a digest per config: each takes a tenth of a second
ANYWHERE = "*"  # replaces the variable name if the value is not from a variable and is secret under any key
_NUMBERS = {int, float, bool}
_Node = dict[str, Any] | list[Any]
_FORM = re.compile(r"\*\*\*(?:pbkdf2:([0-9a-f]{32}):([0-9a-f]{64})(?::(.+))?)?")
_REFERENCE = re.compile(r"\$\{[^{}]*\}")  # a reference is not a secret, although its target may be
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^/\s]+@")
_AnyTable = TypeVar("_AnyTable", bound=Table)

_known: dict[str, str] = {}  # secret values of this process, and the environment variables they came from


def is_secret_name(name: object) -> bool:
    """Return whether a setting with this name is a secret.

    >>> [name for name in ("hf_token", "OPENAI_API_KEY", "pad_token", "use_auth_token") if is_secret_name(name)]
    ['hf_token', 'OPENAI_API_KEY']
    """
    name = str(name).lower().replace("-", "_")
    return name in NAMES or name.endswith(ENDINGS)


def is_secret_recipe(path: Path, recipe: Mapping[str, Any]) -> bool:
    """Return whether a setting read from an environment variable is secret, judging by its name and the variable's."""
    variable = str(recipe.get("name"))
    # unlike a setting such as pad_token, a variable with this suffix always contains a secret
    return is_secret_name(setting_of(path)) or is_secret_name(variable) or variable.lower().endswith("_token")


# -- one value
@functools.lru_cache(maxsize=256)  # one salt per value, so masking a config twice produces the same text
def mask(value: str, variable: str = "") -> str:
    variable = "" if variable == ANYWHERE else variable
    salt = os.urandom(16).hex()
    return f"{MASK}pbkdf2:{salt}:{_digest(salt, value)}" + (f":{variable}" if variable else "")


def is_masked(value: object) -> bool:
    return isinstance(value, str) and value.startswith(MASK) and _FORM.fullmatch(value) is not None


def matches(masked: str, value: object) -> bool:
    """Return whether `value` is the value that was masked."""
    form = _FORM.fullmatch(masked)
    return form is not None and form[1] is not None and isinstance(value, str) and _digest(form[1], value) == form[2]


@functools.lru_cache(maxsize=256)
def _digest(salt: str, value: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", value.encode(), bytes.fromhex(salt), ROUNDS).hex()


# -- a config
def collect_secrets(doc: Document) -> None:
    """Record the secrets of a document, masked or not, before the command line replaces them."""
    for _, _, path, value in _strings(doc):
        if is_masked(value):
            doc.masked.setdefault(dotted_key(path), value)
        elif _is_secret(path, value) and not _REFERENCE.fullmatch(value):
            doc.secrets.setdefault(value, _known.get(value, ""))
    remember(doc.secrets)


def restore_secrets(doc: Document) -> None:
    """Restore the masked values of a document where possible, and record all its secrets.

    A value is restored from the environment variable named in the mask or from the secrets known to this process, but
    only if the digest matches, so a record cannot make a part read any other variable.
    """
    collect_secrets(doc)
    for node, key, path, value in _strings(doc) if doc.masked else ():
        form = doc.masked.get(dotted_key(path), "")
        found = _find(form) if is_masked(value) and len(doc.masked) <= MAX_DIGESTS else value
        if form and found is not None and not is_masked(found):  # it was masked, so it is secret regardless of its name
            _replace(node, key, found)
            named = is_secret_name(setting_of(path))
            doc.secrets[found] = _variable_of(form) or _known.get(found) or ("" if named else ANYWHERE)
    remember(doc.secrets)


def keep_secret(doc: Document, path: Path, value: object, made: object) -> None:
    """Keep the result of a reference secret, under any key, if the value at `path` is a secret."""
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
    """Redact these values in all logs of this process; `secrets` maps each one to its environment variable or ""."""
    for value, variable in secrets.items():
        if value not in _known or (variable and not (variable == ANYWHERE and _known[value])):
            _known[value] = variable
            _pattern.cache_clear()


def mask_secrets(table: _AnyTable) -> _AnyTable:
    """Return a copy of a config with masked secrets; a secret that was already masked in the file keeps its mask."""
    twin = copy.deepcopy(table)
    former = list(table.masked.values())[:MAX_DIGESTS] if isinstance(table, Document) else []
    found = [row for row in _strings(twin) if _is_secret(row[2], row[3]) and not is_masked(row[3])]
    for count, (node, key, _, value) in enumerate(found):
        form = next((form for form in former if matches(form, value)), None) if count < MAX_DIGESTS else MASK
        _replace(node, key, form or mask(value, _known.get(value, "")))
    return twin


def as_written(doc: Document) -> dict[str, Any]:
    """Return the values of a config as written in its file; masked values stay masked."""
    data = doc.plain()
    for node, key, path, value in _strings(data):
        if _is_secret(path, value) and not is_masked(value):
            _replace(node, key, doc.masked.get(dotted_key(path), MASK))
    return data


def without_secrets(table: Table) -> dict[str, Any]:
    """Return the values of a config with all secrets replaced by the same text, e.g. to compute a hash."""
    data = table.plain()
    for node, key, path, value in _strings(data):
        if _is_secret(path, value):
            _replace(node, key, MASK)
    return data


def missing_secrets(doc: Document) -> list[Problem]:
    """Report masked values that could not be restored, since no part can use them."""
    problems = []
    for node, key, path, value in _strings(doc) if doc.masked else ():
        if is_masked(value):
            name, variable = dotted_key(path), _variable_of(value)
            where = node.where(key) if isinstance(node, Table) else doc.where(str(path[0]))
            text = f"{name} is a secret: the record stores only its digest, and no matching value was provided"
            export = f"export {variable}=.., or " if variable else ""
            problems.append(Problem(text, where, hint=f"{export}pass the value used by the run: --set {name}=.."))
    return problems


def changed_secrets(doc: Document) -> list[str]:
    """Return the settings that were masked in the file and now have a different value."""
    values = {dotted_key(path): value for _, _, path, value in _strings(doc)}
    return [key for key, form in doc.masked.items() if key in values and not _agree(form, values[key])]


def conceal(key: str, one: object, other: object) -> tuple[object, object, bool]:
    """Return two values of a setting in printable form, and whether they are probably the same secret."""
    same = isinstance(one, str) and isinstance(other, str) and _agree(one, other)
    name = key.rpartition(".")[2]
    return mask_value(name, one), mask_value(name, other), same


def mask_value(name: str, value: object) -> object:
    """Return the value of a setting, masked if it is secret; a string that is only a reference is not masked."""
    texts = _strings(value, (name,)) if isinstance(value, list) else ()
    hidden = any(_is_secret(path, text) for _, _, path, text in texts)
    if isinstance(value, str) and value:
        hidden = _is_secret((name,), value) and not _REFERENCE.fullmatch(value)
    return MASK if hidden else value


def _agree(one: str, other: str) -> bool:
    """Return whether two values are equal; two masked values are considered equal, since their salts differ."""
    if is_masked(one) and is_masked(other):
        return True
    return one == other or matches(one, other) or matches(other, one)


def _strings(node: _Node, path: Path = ()) -> Iterator[tuple[_Node, Any, Path, str]]:
    """Yield every non-empty string in a config: its container, key, path and value."""
    if isinstance(node, list) and _NUMBERS.issuperset(map(type, node)):
        return  # fast path for long lists of numbers
    for key, item in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(item, str):
            if item:
                yield node, key, (*path, key), item
        elif isinstance(item, dict | list):
            yield from _strings(item, (*path, key))


def _is_secret(path: Path, value: str) -> bool:
    return is_secret_name(setting_of(path)) or bool(_known.get(value)) or is_masked(value)


def setting_of(path: Path) -> str:
    """Return the name of a setting; the elements of a list share one name."""
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
    """Return the value of a masked secret if it is in the environment or among the secrets of this process."""
    variable = _variable_of(masked)
    with contextlib.suppress(ValueError):  # a record may contain any name
        value = os.environ.get(variable, "").strip()
        if value and matches(masked, value):
            remember({value: variable})
            return value
    return next((value for value in list(_known) if matches(masked, value)), None)


# -- text
def hide(text: str) -> str:
    """Redact the secret values of this process in `text`."""
    pattern = _pattern() if _known else None
    return text if pattern is None else pattern.sub(MASK, text)


def contains_secret(text: str) -> bool:
    return hide(text) != text


def hide_words(words: Iterable[str]) -> list[str]:
    """Redact command-line arguments: `--set hub.token=..`, `--set=hub.token=..`, `--api-key ..`, `https://user:..@host`."""
    redacted: list[str] = []
    for word in words:
        after_option = bool(redacted) and redacted[-1].startswith("--") and is_secret_name(redacted[-1][2:])
        is_value = after_option and not word.startswith("--")
        redacted.append(MASK if is_value else hide(_URL_PASSWORD.sub(rf"\g<1>{MASK}@", _hide_setting(word))))
    return redacted


def _hide_setting(word: str) -> str:
    option = "--set=" if word.startswith("--set=") else ""
    left, _, value = word.removeprefix(option).partition("=")
    name = left.rpartition(".")[2].strip(" \"'-")
    return f"{option}{left}={MASK}" if value.strip() and is_secret_name(name) else word


@functools.lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str] | None:
    values = [value for value in list(_known) if len(value) >= MIN_LENGTH]
    spellings: Sequence[str] = sorted({spelling for value in values for spelling in _spellings(value)}, key=len)
    return re.compile("|".join(map(re.escape, reversed(spellings)))) if spellings else None


def _spellings(value: str) -> set[str]:
    """Return the forms in which a value may appear in text: unchanged, or escaped as in Python and JSON strings."""
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
