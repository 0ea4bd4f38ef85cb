"""The key of kept samples: a hash over the pipes of a chain, their files, tokenizers and code, and our version."""

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
from alchemy.data.cache.sample_store import Unkept
from alchemy.data.pipe_chain import members, title, walk
from alchemy.files import hash_text
from alchemy.text.base import Tokenizer

NUMBERS = {bool, int, float, type(None)}
MOST_FILES = 10_000
MOST_PATTERNS = 1000  # a longer list is one of texts
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


class Key:
    """What samples are known by: `facts` by name, such as "the file train.jsonl", and a `hash` over all of them.

    Pipes count with what a copy of them would be made of. `also` are files, patterns of files, or words that matter
    too. Raises Unkept for a chain that has no key.
    """

    def __init__(self, dataset: object, hashes: Hashes, also: Sequence[str] = ()) -> None:
        links = [pipe for pipe in walk(dataset) if "" not in members(pipe) or pipe is dataset][::-1]
        self.chain = [title(pipe) for pipe in links]
        self.facts = {"the version of alchemy": alchemy.__version__}
        self.files: dict[str, str] = {}
        self.hashes, self.sources = hashes, Sources()
        self.links = {id(pipe): number for number, pipe in enumerate(links)}
        self.texts: set[str] = set()  # that were looked at already
        for number, pipe in enumerate(links):
            self._add_part(f"pipe {number} ({title(pipe)})", pipe, members(pipe).values())
        self._add_part("'also' of the cache", list(also), [list(also)])
        self.facts |= {f"the file {path}": digest for path, digest in self.files.items()}
        self.facts |= {f"the source of {name}": digest for name, digest in self.sources.hashes.items()}
        self.hash = hash_text(json.dumps([self.chain, sorted(self.facts.items())]))[:32]

    def changed(self) -> list[str]:
        """The files and modules that are not as they were when the key was made."""
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
        except Unkept as error:
            raise Unkept(f"{name}: {error}") from None
        except Exception as error:  # whatever a class raises that does not want to be copied
            raise Unkept(f"{name} holds a value that cannot be looked into: {error}") from None

    def digest(self, value: object, *, top: bool = False) -> str:
        """A hash of what a copy would be made of; names of files and modules in it are noted on the way."""
        content = io.BytesIO()
        _Pickler(content, self, value if top else None).dump(value)
        return hashlib.blake2b(content.getbuffer(), digest_size=16).hexdigest()

    def tokenizer(self, value: Tokenizer) -> str:
        try:
            self.facts[f"the tokenizer of {self.part}"] = value.digest
        except NotImplementedError:
            raise Unkept(f"{title(value)} defines no options() and contents()") from None
        return value.digest

    def name(self, value: FunctionType | type) -> str:
        name = f"{value.__module__}.{value.__qualname__}"
        if "<" in value.__qualname__:
            raise Unkept(f"{name} has no name of its own: it is a lambda, or stands inside of another function")
        for owner in value.__mro__ if isinstance(value, type) else (value,):
            self.sources.add(owner.__module__)
        return name

    # -- names of files and modules

    def text(self, text: str) -> None:
        """A text that is the name of a file, or of a module, means what is in it."""
        if text in self.texts:
            return
        self.texts.add(text)
        if DOTTED.fullmatch(text):
            self.sources.add(text, own=True)
        if _may_be_path(text) and os.path.isfile(text):
            self._add_file(text)

    def _add_paths(self, option: object) -> None:
        """The folders and patterns that an option names, itself or as an item of a list or table."""
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
                    elif "**" not in text:  # which finds what is in folders by itself
                        self._add_folder(path)

    def _add_folder(self, root: str) -> None:
        """Every file below it counts, hidden ones too: nobody knows which of them a pipe reads."""
        if os.path.join(os.getcwd(), "").startswith(os.path.join(os.path.abspath(root), "")):
            raise Unkept(f"it names the folder {root!r}, which holds everything here; name the files in it")
        seen: set[str] = set()
        for folder, folders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            folders[:] = sorted(name for name in folders if name != "__pycache__" and real not in seen)
            seen.add(real)
            for name in sorted(names):
                self._add_file(os.path.join(folder, name))

    def _add_file(self, path: str) -> None:
        if path in self.files or not os.path.isfile(path):  # what is no file, as a pipe, may have no end
            return
        if len(self.files) >= MOST_FILES:
            raise Unkept(f"it reads more than {MOST_FILES:,} files")
        try:
            self.files[path] = self.hashes.of(path)
        except OSError as error:
            raise Unkept(f"{path} cannot be read: {error.strerror}") from error


def _may_be_path(text: str) -> bool:
    return 0 < len(text) < 1024 and "\n" not in text and "\0" not in text


class _Pickler(pickle.Pickler):
    """Spells out a part of a chain for its key; what has a digest, a name or no order of its own is given as a text."""

    def __init__(self, content: io.BytesIO, key: Key, top: object) -> None:
        super().__init__(content, protocol=4)
        self.key, self.top = key, top
        self.fast = True  # no references: equal values become equal bytes, whichever of their parts are shared

    def persistent_id(self, value: Any) -> str | None:
        key = self.key
        if isinstance(value, str | PurePath):
            key.text(str(value))
            return f"{type(value).__name__} {str(value)!r}"
        if type(value) in (list, tuple) and NUMBERS.issuperset(map(type, value)):
            return repr(value)  # one by one they would take long
        if isinstance(value, Tensor | np.ndarray | np.generic):
            return f"array {digest_of(value).hex()}"
        if id(value) in key.links and value is not self.top:
            return f"link {key.links[id(value)]}"
        if isinstance(value, FunctionType | type):
            return f"name {key.name(value)}"
        if isinstance(value, Tokenizer):
            return f"{key.name(type(value))} {key.tokenizer(value)}"
        if isinstance(value, set | frozenset):
            return f"set {sorted(map(key.digest, value))}"
        # tables of a config note what is read of them: only by the methods of `dict` nothing is noted
        if isinstance(value, dict) and type(value) is not dict:
            return f"dict {key.digest(dict(dict.items(value)))}"
        if isinstance(value, list) and type(value) is not list:
            return f"list {key.digest(list(value))}"
        return None

    def reducer_override(self, value: Any) -> Any:
        made = copyreg.dispatch_table.get(type(value), lambda item: item.__reduce_ex__(4))(value)
        module = inspect.getmodule(value) if isinstance(made, str) else None
        if module is not None:  # a global name: that of a ufunc, or of a function with a cache
            self.key.sources.add(module.__name__)
        return made


def changed_facts(facts: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """What has changed, in words."""
    both = [name for name in facts if name in before]
    return [
        *(f"{name} has changed" for name in both if facts[name] != before[name]),
        *(f"{name} is new" for name in facts if name not in before),
        *(f"{name} is gone" for name in before if name not in facts),
    ]
