"""Read config files in TOML, JSON, INI or Python format as plain data with line numbers.

`// comments` and `"//"` keys in JSON are skipped. INI is TOML with a different comment syntax. Python configs are
executed, so they need explicit consent. For values that a format cannot express, see `alchemy.config.values`.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from alchemy.config.line_numbers import DEEPEST, Lines, Path, scan_json
from alchemy.config.values import Parsed, decode, fail
from alchemy.errors import did_you_mean
from alchemy.trust import digest_of

LARGEST = 4 * 2**20  # bytes: configs are written by hand; anything larger is data that belongs in a separate file


def read_file(path: str, *, allow_code: bool = False, where: str = "") -> Parsed:
    """Read a config file and raise ConfigError on any failure; `where` is the location that refers to it."""
    _check_exists(path, where)
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in _FORMATS and not os.path.isdir(path):
        known = f"supported: {', '.join(_FORMATS)}"
        fail(f"{path!r} is not in a supported format", where=where, hint=known)
    if suffix == ".py" and not allow_code:
        trust = "pass --allow-code (from Python: allow_code=True) if you trust it"
        fail(f"{path} is Python code, which would be executed", where=where, hint=trust)
    raw = content_of(path, where)
    parsed = parse(_decode_text(raw, path), suffix, path)
    parsed.digest = digest_of(raw)
    if not parsed.data:
        fail("the file contains no settings", where=path, hint="a config needs at least tag, runner, task and model")
    return parsed


def parse(text: str, suffix: str, name: str) -> Parsed:
    """Parse `text` in the format given by `suffix` (".toml", ".json", ".ini", ".py")."""
    try:
        parsed = _FORMATS[suffix](text.replace("\r\n", "\n"), name)
        parsed.data = decode(parsed.data, name, parsed.lines)
    except RecursionError:
        fail(f"tables are nested more than {DEEPEST} levels deep", where=name)
    return parsed


def _check_exists(path: str, where: str) -> None:
    if os.path.exists(path):
        return
    folder, name = os.path.split(path)
    try:
        siblings = os.listdir(folder or ".")
    except OSError:
        fail(f"cannot find {name!r}: there is no folder {folder!r}", where=where, hint="check the path")
    except ValueError:
        fail(f"{path!r} is not a valid path", where=where)
    configs = sorted(sibling for sibling in siblings if os.path.splitext(sibling)[1] in _FORMATS)
    offer = f"the folder contains {', '.join(configs[:5])}" if configs else "check the path"
    fail(f"config file not found: {path!r}", where=where, hint=did_you_mean(name, siblings) or offer)


def content_of(path: str, where: str = "") -> bytes:
    """Return the content of a regular file of limited size."""
    try:
        info = os.stat(path)
        if stat.S_ISDIR(info.st_mode):
            fail(f"{path!r} is a folder", where=where, hint="name the config file inside it")
        if not stat.S_ISREG(info.st_mode):
            fail(f"{path!r} is not a regular file", where=where)
        with open(path, "rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        fail(f"{path!r} cannot be read: {error.strerror or error}", where=where)
    if len(raw) > LARGEST:
        hint = "keep data in separate files and name them in the config"
        fail(f"the file is larger than {LARGEST // 2**20} MB, the limit for a config", where=path, hint=hint)
    return raw


def _decode_text(raw: bytes, path: str) -> str:
    if not raw.strip():
        fail("the file is empty", where=path)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        fail("the file is UTF-16", where=path, hint="save it as UTF-8")
    if b"\0" in raw:
        fail("the file is binary, not text", where=path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        fail("the file is not UTF-8 text", where=f"{path}:{line}", hint="save it as UTF-8")


def _json(text: str, name: str) -> Parsed:
    import json

    lines: Mapping[Path, int] = Lines(text, json=True)
    try:
        data = json.loads(text, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError):  # comments, trailing commas, a duplicate key, or a syntax error
        layout = scan_json(text, name)
        data, lines = _loads(layout.text, name), layout.lines
    if not isinstance(data, dict):
        fail("a JSON config must be one object", where=name, hint="enclose it in { ... }")
    return Parsed(_drop_comment_keys(data), lines)


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is set twice")
    return table


def _loads(text: str, name: str) -> Any:
    import json

    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fail(f"invalid JSON: {error.msg[:1].lower()}{error.msg[1:]}", where=f"{name}:{error.lineno}")
    except ValueError as error:  # numbers with more than 4,300 digits
        fail(f"invalid JSON: {error}", where=name)


def _drop_comment_keys(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _drop_comment_keys(item) for key, item in value.items() if key != "//"}
    return [_drop_comment_keys(item) for item in value] if isinstance(value, list) else value


def _toml(text: str, name: str) -> Parsed:
    from alchemy.config.toml_reader import parse_toml

    return parse_toml(text, name)


def _ini(text: str, name: str) -> Parsed:
    """Parse INI: sections are tables and values are TOML, so only comments and colons are translated."""
    return _toml(re.sub(r"(?m)^([\w.-]+[ \t]*):", r"\1=", re.sub(r"(?m)^([ \t]*);", r"\1#", text)), name)


def _python(text: str, name: str) -> Parsed:
    from alchemy.config.python_config import parse_code

    return parse_code(text, name)


_FORMATS = {".toml": _toml, ".json": _json, ".ini": _ini, ".cfg": _ini, ".py": _python}
