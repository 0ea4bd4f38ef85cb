"""Compute the cache key of a chain: a hash of its pipes, files, tokenizers and code, and of the alchemy version."""

from __future__ import annotations

import copyreg
import glob
import hashlib
import inspect
import io
import json
import os
import pickle
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

import alchemy
from alchemy.data.batch_digest import digest_of
from alchemy.data.cache.code_sources import Sources
from alchemy.data.cache.file_hashes import Hashes
from alchemy.data.cache.sample_store import NotCacheable
from alchemy.data.pipe_chain import members, title, walk
from alchemy.files import hash_text
from alchemy.text.base import Tokenizer

NUMBERS = {bool, int, float, type(None)}
MOST_FILES = 10_000
MOST_PATTERNS = 1000  # longer lists are data, not lists of patterns
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class Key:
    """The cache key of a chain: named `facts`, such as "the file train.jsonl", and a `hash` of all of them.

    The hash of a pipe covers the state that would be copied with it. `also` lists additional dependencies: files, file
    patterns or arbitrary strings. Raises NotCacheable if no key can be computed.
    """

    def __init__(self, dataset: object, hashes: Hashes, also: Sequence[str] = ()) -> None:
        links = [pipe for pipe in walk(dataset) if "" not in members(pipe) or pipe is dataset][::-1]
        self.chain = [title(pipe) for pipe in links]
        self.facts = {"the version of alchemy": alchemy.__version__}
        self.files: dict[str, str] = {}
        self.hashes, self.sources = hashes, Sources()
        self.links = {id(pipe): number for number, pipe in enumerate(links)}
        self.texts: set[str] = set()  # strings that have already been examined
        for number, pipe in enumerate(links):
            self._add_part(f"pipe {number} ({title(pipe)})", pipe, members(pipe).values())
        self._add_part("'also' of the cache", list(also), [list(also)])
        self.facts |= {f"the file {path}": digest for path, digest in self.files.items()}
        self.facts |= {f"the source of {name}": digest for name, digest in self.sources.hashes.items()}
        self.hash = hash_text(json.dumps([self.chain, sorted(self.facts.items())]))[:32]

    def changed(self) -> list[str]:
        """Return the files and modules that have changed since the key was computed."""
        files = (
            path for path, known in self.files.items() if not os.path.isfile(path) or self.hashes.of(path) != known
        )
        return [*files, *self.sources.changed()]

    def _add_part(self, name: str, part: object, options: Iterable[object]) -> None:
        self.part = name
        try:
            for option in options:
                self._add_paths(option)
            self.facts[name] = self.digest(part, top=True)
        except NotCacheable as error:
            raise NotCacheable(f"{name}: {error}") from None
        except Exception as error:  # a class that cannot be copied may raise anything
            raise NotCacheable(f"{name} contains a value that cannot be hashed: {error}") from None

    def digest(self, value: object, *, top: bool = False) -> str:
        """Return a hash of the state that would be copied with `value`; collect the files and modules it refers to."""
        content = io.BytesIO()
        _Pickler(content, self, value if top else None).dump(value)
        return hashlib.blake2b(content.getbuffer(), digest_size=16).hexdigest()

    def add_tokenizer(self, value: Tokenizer) -> str:
        """Add the digest of a tokenizer to the facts and return it."""
        try:
            self.facts[f"the tokenizer of {self.part}"] = value.digest
        except NotImplementedError:
            raise NotCacheable(f"{title(value)} does not define options() and contents()") from None
        return value.digest

    def add_source(self, value: FunctionType | type) -> str:
        """Add the source of a function or class and return its qualified name."""
        name = f"{value.__module__}.{value.__qualname__}"
        if "<" in value.__qualname__:
            raise NotCacheable(f"{name} is a lambda or a nested function; define it at module level")
        for owner in value.__mro__ if isinstance(value, type) else (value,):
            self.sources.add(owner.__module__)
        return name

    # -- names of files and modules

    def add_text(self, text: str) -> None:
        """Add the contents of the file or module that a string refers to, if any."""
        if text in self.texts:
            return
        self.texts.add(text)
        if DOTTED.fullmatch(text):
            self.sources.add(text, own=True)
        if _may_be_path(text) and os.path.isfile(text):
            self._add_file(text)

    def _add_paths(self, option: object) -> None:
        """Add the folders and patterns in an option, which may be a string, a list or a table."""
        items = list(dict.values(option)) if isinstance(option, dict) else option
        items = items if isinstance(items, list | tuple) else [items]
        for item in items if len(items) <= MOST_PATTERNS else ():
            text = str(item) if isinstance(item, str | PurePath) else ""
            if not _may_be_path(text):
                continue
            if os.path.isdir(text):
                self._add_folder(text)
            elif glob.has_magic(text) and ("/" in text or "." in text):
                for path in sorted(glob.glob(text, recursive=True, include_hidden=True)):
                    if not os.path.isdir(path):
                        self._add_file(path)
                    elif "**" not in text:  # `**` also matches the files in folders
                        self._add_folder(path)

    def _add_folder(self, root: str) -> None:
        """Add every file below a folder, including hidden files, because a pipe may read any of them."""
        if os.path.join(os.getcwd(), "").startswith(os.path.join(os.path.abspath(root), "")):
            raise NotCacheable(f"the folder {root!r} contains the current folder; list the files in it instead")
        seen: set[str] = set()
        for folder, folders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            folders[:] = sorted(name for name in folders if name != "__pycache__" and real not in seen)
            seen.add(real)
            for name in sorted(names):
                self._add_file(os.path.join(folder, name))

    def _add_file(self, path: str) -> None:
        if path in self.files or not os.path.isfile(path):  # reading a named pipe, for example, may block forever
            return
        if len(self.files) >= MOST_FILES:
            raise NotCacheable(f"more than {MOST_FILES:,} files")
        try:
            self.files[path] = self.hashes.of(path)
        except OSError as error:
            raise NotCacheable(f"cannot read {path}: {error.strerror}") from error


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 1024 and "\n" not in text and "\0" not in text


class _Pickler(pickle.Pickler):
    """Serializes a part of a chain, using strings in place of values such as functions, sets, arrays and tokenizers."""

    def __init__(self, content: io.BytesIO, key: Key, top: object) -> None:
        super().__init__(content, protocol=4)
        self.key, self.top = key, top
        self.fast = True  # no memo: equal values produce equal bytes, even if some of their parts are shared

    def persistent_id(self, value: Any) -> str | None:
        key = self.key
        if isinstance(value, str | PurePath):
            key.add_text(str(value))
            return f"{type(value).__name__} {str(value)!r}"
        if type(value) in (list, tuple) and NUMBERS.issuperset(map(type, value)):
            return repr(value)  # pickling items one by one is slow
        if isinstance(value, Tensor | np.ndarray | np.generic):
            return f"array {digest_of(value).hex()}"
        if id(value) in key.links and value is not self.top:
            return f"link {key.links[id(value)]}"
        if isinstance(value, FunctionType | type):
            return f"name {key.add_source(value)}"
        if isinstance(value, Tokenizer):
            return f"{key.add_source(type(value))} {key.add_tokenizer(value)}"
        if isinstance(value, set | frozenset):
            return f"set {sorted(map(key.digest, value))}"
        # config tables track which keys are read; calling the methods of `dict` bypasses that
        if isinstance(value, dict) and type(value) is not dict:
            return f"dict {key.digest(dict(dict.items(value)))}"
        if isinstance(value, list) and type(value) is not list:
            return f"list {key.digest(list(value))}"
        return None

    def reducer_override(self, value: Any) -> Any:
        reduced = copyreg.dispatch_table.get(type(value), lambda item: item.__reduce_ex__(4))(value)
        module = inspect.getmodule(value) if isinstance(reduced, str) else None
        if module is not None:  # a global name, e.g. that of a ufunc or an lru_cache function
            self.key.sources.add(module.__name__)
        return reduced


def changed_facts(facts: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Describe the differences between two sets of facts."""
    both = [name for name in facts if name in before]
    return [
        *(f"{name} has changed" for name in both if facts[name] != before[name]),
        *(f"{name} is new" for name in facts if name not in before),
        *(f"{name} was removed" for name in before if name not in facts),
    ]
