"""All that decides which samples leave a chain of pipes: data, options, code, tokenizers, versions."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import inspect
import itertools
import json
import os
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from torch import Tensor
from torch.nn import Parameter

from alchemy.data.cache.hashes import Hashes
from alchemy.data.cache.members import Opaque, extended, members, parts
from alchemy.data.cache.sources import RUN, Sources, found_by, is_own_module, version
from alchemy.data.cache.store import Stored
from alchemy.data.chain import Order, title, walk
from alchemy.data.corpus.layout import IDS, MANIFEST, OFFSETS, beside
from alchemy.data.corpus.mapped import Corpus
from alchemy.files import hash_text, home
from alchemy.text.base import Tokenizer

PLAIN = (bytes, bool, int, float, complex, type(None), type(Ellipsis))
ARRAYS = (Tensor, Parameter, np.ndarray, np.memmap)  # which hold nothing but numbers
NUMBERS = frozenset((int, float, bool, type(None)))
SILENT = ("logging", "loguru", "threading", "_thread", "rich")  # what these make decides no sample
BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
MOST_FILES = 10_000
MOST_PATTERNS = 1000  # a longer list with such signs is one of texts
NAMED_FILES = 100  # more than these are told of by their folder
ALWAYS = ("python", "numpy", "alchemy")
TEXT = ("tokenizers", "sentencepiece")


class Identity:
    """`facts` by name, such as "the file train.jsonl"; `unknown` says of what it cannot be told what it does."""

    def __init__(self, chain: list[str]) -> None:
        self.chain = chain
        self.facts: dict[str, str] = {}
        self.unknown: list[str] = []
        self.files: dict[str, str] = {}  # the hash of each that is read
        self.orders: list[tuple[Order, int | str, int]] = []  # of the pipes, each with its seed and passes
        self.read_only = False  # what is kept may be read, and nothing written
        self.asks_run = False  # whether some module of the project reads from the run: its config matters then

    def changed(self, hashes: Hashes) -> list[str]:
        """The files that are not as they were when they were looked at."""
        return [path for path, digest in self.files.items() if not os.path.isfile(path) or hashes.of(path) != digest]

    @property
    def key(self) -> str:
        return hash_text(json.dumps([self.chain, sorted(self.facts.items())]))[:32]


def identity_of(dataset: Any, hashes: Hashes, also: Sequence[str] = ()) -> Identity:
    """Looks at every link of a chain; `also` are files, patterns of them, or words that matter too."""
    links = [pipe for pipe in walk(dataset) if hasattr(pipe, "__dict__") or pipe is dataset][::-1]
    look = _Look(links, hashes)
    orders = (pipe.order for pipe in links if isinstance(getattr(pipe, "order", None), Order))
    look.found.orders = [(order, order.seed, order.passes) for order in orders]
    for number, pipe in enumerate(links):
        look.pipe(f"pipe {number} ({title(pipe)})", pipe)
    look.at = "'also' of the cache"
    look.found.facts["'also' of the cache"] = look.digest(list(also))
    for package in ALWAYS:
        look.found.facts[f"the version of {package}"] = version(package)
    look.gather()
    return look.found


class _Look:
    """A walk over all that a chain consists of."""

    def __init__(self, links: list[Any], hashes: Hashes) -> None:
        self.links = {id(pipe): number for number, pipe in enumerate(links)}
        self.hashes, self.sources = hashes, Sources()
        self.found = Identity([title(pipe) for pipe in links])
        self.files: dict[str, str] = {}
        self.texts: set[tuple[str | bytes, bool]] = set()  # that were looked at already
        self.patterns = 0
        self.functions: set[types.FunctionType] = set()  # whose surroundings were looked at already
        self.in_code = False  # whether that is what code holds, and no option
        self.at = ""  # what is being looked at, as messages call it

    def pipe(self, name: str, pipe: Any) -> None:
        for key, value in members(pipe).items():
            if key != "_place":  # where a config describes it
                self.at = f"{key!r} of {name}"
                self.found.facts[self.at] = self.digest(value)
        self.at = name
        self._class(type(pipe))
        if extended(type(pipe)) is not object:  # a list, or what is one too
            number = self.links.pop(id(pipe))  # it stands for itself here
            self.found.facts[f"the content of {name}"] = self.digest(pipe)
            self.links[id(pipe)] = number

    def gather(self) -> None:
        """What was found on the way: files, sources, versions."""
        for path in sorted(self.sources.files):
            self._file(path)
        for module in self.sources.outdated:
            self.at = f"the module {module}"
            self._unknown("it was edited after it had been imported; start the program again")
        self.found.files = dict(self.files)
        self.found.facts |= self.sources.facts
        self.found.asks_run = self.sources.asks_run
        if len(self.files) <= NAMED_FILES:
            self.found.facts |= {f"the file {path}": digest for path, digest in self.files.items()}
            return
        for folder, rows in itertools.groupby(sorted(self.files.items()), lambda row: os.path.dirname(row[0])):
            self.found.facts[f"the files of {folder or '.'}"] = hash_text(json.dumps(list(rows)))

    def digest(self, value: Any) -> str:
        digest = hashlib.blake2b(digest_size=16)
        try:
            self._add(digest, value, ())
        except RecursionError:
            self._unknown("it is nested too deeply to be looked into")
        return digest.hexdigest()

    def _unknown(self, what: str) -> None:
        self.found.unknown.append(f"{self.at}: {what}")

    def _add(self, digest: Any, value: Any, above: tuple[int, ...]) -> None:
        """`above` are the ids of what the value lies in: it may lie in itself."""
        kind = type(value)
        if isinstance(value, str | os.PathLike) and not self.in_code:
            self._path(os.fspath(value), len(above))
        if kind is str or (isinstance(value, PurePath) and kind.__module__ == PurePath.__module__):
            digest.update(f"{kind.__name__} {os.fspath(value)!r}".encode())
        elif kind in PLAIN or (kind in (list, tuple) and NUMBERS.issuperset(map(type, value))):
            digest.update(f"{kind.__name__} {_spelt(value)}".encode())
        elif kind in ARRAYS or isinstance(value, np.generic):
            self._numbers(digest, value, above)
        elif id(value) in self.links:
            digest.update(f"link {self.links[id(value)]}".encode())
        elif id(value) in above:
            digest.update(f"itself {above[::-1].index(id(value))}".encode())
        else:
            head, parts = self._opened(value, above)
            digest.update(head.encode())
            for part in parts:
                self._add(digest, part, (*above, id(value)))

    def _numbers(self, digest: Any, value: Any, above: tuple[int, ...]) -> None:
        if isinstance(value, Tensor):
            try:
                value = value.detach().cpu().numpy()
            except (TypeError, RuntimeError) as error:
                self._unknown(str(error))
                return
        digest.update(f"array {value.dtype} {value.shape}".encode())
        if value.dtype.hasobject:
            self._add(digest, value.tolist(), above)
        else:
            digest.update(value.tobytes())

    def _opened(self, value: Any, above: tuple[int, ...]) -> tuple[str, Sequence[Any]]:
        """What stands for a container, a function or an object, and what it holds."""
        if self.in_code and type(value).__module__.partition(".")[0] in SILENT:
            return title(value), ()
        if type(value) is dict:
            return f"dict {len(value)}", list(itertools.chain.from_iterable(value.items()))
        if type(value) in (list, tuple):
            return f"{type(value).__name__} {len(value)}", value
        if type(value) in (set, frozenset):  # in no order
            return f"{type(value).__name__} {len(value)}", sorted(self.digest(item) for item in value)
        if isinstance(value, types.ModuleType):
            self._source(value.__name__)
            return f"module {value.__name__}", ()
        if isinstance(value, type):
            self._class(value)
            return f"class {value.__module__}.{value.__qualname__}", ()
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, BUILT_IN):
            owner = getattr(value, "__self__", None)
            self._source(getattr(value, "__module__", None) or "")
            return f"built in {value.__qualname__}", () if isinstance(owner, types.ModuleType) else (owner,)
        if isinstance(value, Tokenizer):
            self._class(type(value))
            self.found.facts |= {f"the version of {name}": version(name) for name in TEXT}
            try:
                digest = value.digest
            except NotImplementedError:
                self._unknown(f"{title(value)} defines no options() and contents()")
                return "unknown", ()
            self.found.facts[f"the tokenizer in {self.at}"] = digest
            return f"tokenizer {digest}", ()
        if isinstance(value, Identity):  # of a cache before this one, whose samples count
            return "identity", ()
        if isinstance(value, Stored):
            return f"kept {value.digest}", ()
        if isinstance(value, Corpus):
            for ending in (IDS, OFFSETS, MANIFEST):
                self._file(str(beside(value.path, ending)))
            return f"corpus {value.path}", ()
        return self._object(value)

    def _object(self, value: Any) -> tuple[str, Sequence[Any]]:
        """An object is what it holds, and what a copy of it would be made of."""
        try:
            made = parts(value)
        except Opaque as error:
            self._unknown(f"a {title(value)} {error}")
            return "unknown", ()
        self._class(type(value))
        if isinstance(made, str):  # a global name: that of a ufunc, or of a function with a cache
            self._source(getattr(value, "__module__", None) or "")
            return f"object {title(value)} {made}", [value.__wrapped__] if hasattr(value, "__wrapped__") else ()
        return f"object {title(value)}", made

    def _function(self, value: types.FunctionType) -> tuple[str, Sequence[Any]]:
        name = f"{value.__module__}.{value.__qualname__}"
        if self.in_code:
            return f"function {name}", ()
        if "<lambda>" in name or "<locals>" in name:
            self._unknown(f"{name} has no name of its own: it is a lambda, or stands inside of another function")
            return "unknown", ()
        for module in (value.__module__, value.__globals__.get("__name__", "")):  # they differ where it is decorated
            self._source(module)
        self._asks_run(value.__code__, name)
        self._surroundings(value)
        return f"function {name}", [*inspect.getclosurevars(value).nonlocals.values(), *vars(value).values()]

    def _surroundings(self, function: types.FunctionType) -> None:
        """What a function of the project finds in its module, and unless told takes for arguments, as it is now."""
        name = f"{function.__module__}.{function.__qualname__}"
        if function in self.functions or not is_own_module(function.__module__):
            return
        self.functions.add(function)
        given: dict[str, Any] = {"": [function.__defaults__, function.__kwdefaults__]}
        for word, value in found_by(function):
            target = vars(value).get("__wrapped__", value) if hasattr(value, "__dict__") else value
            if isinstance(target, types.FunctionType | type):
                given[word] = f"{target.__module__}.{target.__qualname__}"
                if isinstance(target, types.FunctionType):
                    self._surroundings(target)
                elif is_own_module(target.__module__):
                    self._class(target)
            else:
                given[word] = value
        for word, value in given.items():
            digest, unknown = self._held(value)
            self.found.facts[f"{word or 'the signature'} of {name}"] = digest
            self.found.unknown += [f"{word} of {name}{text.removeprefix(self.at)}" for text in unknown]

    def _held(self, value: Any) -> tuple[str, list[str]]:
        """The digest of what code holds, and what is unknown of it; of files and functions the name is enough there."""
        before, self.in_code = len(self.found.unknown), True
        digest, self.in_code = self.digest(value), False
        unknown = self.found.unknown[before:]
        del self.found.unknown[before:]
        return digest, unknown

    def _class(self, kind: type) -> None:
        for base in kind.__mro__:
            if "<locals>" in base.__qualname__:
                self._unknown(f"the class {base.__qualname__} stands inside of a function")
            self._source(base.__module__)
            self._constants(base)
            if not base.__module__.startswith("alchemy."):
                for name, member in vars(base).items():
                    function = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                    code = getattr(function, "__code__", None)
                    if code is not None and name != "__init__":
                        self._asks_run(code, f"{base.__module__}.{base.__qualname__}.{name}")
                    if isinstance(function, types.FunctionType):
                        self._surroundings(function)

    def _constants(self, kind: type) -> None:
        """What a class gives to all its objects may be set anew while a program runs: its source does not tell."""
        name = f"the constants of the class {kind.__module__}.{kind.__qualname__}"
        if name in self.found.facts or kind.__module__.partition(".")[0] in ("alchemy", *sys.stdlib_module_names):
            return
        given = {key: item for key, item in vars(kind).items() if not key.startswith("__")}
        # no methods: what these do is told by their code; nor what is unknown: that is told by the source alone
        digests = {key: self._held(item) for key, item in given.items() if not hasattr(type(item), "__get__")}
        known = {key: digest for key, (digest, unknown) in digests.items() if not unknown}
        self.found.facts |= {name: hash_text(json.dumps(known))} if known else {}

    def _asks_run(self, code: types.CodeType, name: str) -> None:
        """What reads from the run while samples flow may depend on all of it."""
        for inner in (code, *(item for item in code.co_consts if isinstance(item, types.CodeType))):
            asked = [word for word in RUN if word in inner.co_names]
            if asked:
                self._unknown(f"{name} asks the run, by {asked[0]}()")

    def _source(self, module: str) -> None:
        if module != "pybind11_builtins" and not self.sources.add(module):  # the base of classes written in C++
            self._unknown(f"the module {module} has no source")

    # -- files

    def _path(self, text: str | bytes, depth: int) -> None:
        """A text that is the name of a file means what is in the file."""
        if (text, depth <= 1) in self.texts:
            return
        self.texts.add((text, depth <= 1))
        if not isinstance(text, str) or not 0 < len(text) < 1024 or "\n" in text:
            return
        self.sources.mentioned(text)
        if os.path.isfile(text):
            self._file(text)
        elif depth > 1 and os.path.isdir(text):
            self._unknown(f"it names the folder {text!r} deep inside of an option; name it in `also` too, or higher up")
        elif os.path.isdir(text):
            self._folder(text)
        elif depth <= 1 and self.patterns < MOST_PATTERNS and glob.has_magic(text) and ("/" in text or "." in text):
            self.patterns += 1
            self._pattern(text)

    def _pattern(self, text: str) -> None:
        with contextlib.suppress(ValueError):  # a zero byte: no pattern
            found = sorted(glob.glob(text, recursive=True, include_hidden=True))
            self._all(text, found)
            folders = [path for path in found if os.path.isdir(path) and os.path.abspath(path) != str(home())]
            self.found.facts[f"the list of folders that are {text}"] = hash_text(json.dumps(folders))
            for path in folders if "**" not in text else ():  # which finds all that is in the folders itself
                self._folder(path)

    def _folder(self, root: str) -> None:
        """Every file below it counts, hidden ones too: nobody knows which of them a pipe reads."""
        if Path.cwd().is_relative_to(os.path.abspath(root)):
            self._unknown(f"it names the folder {root!r}, which holds everything here; name the files in it")
            return
        inside: list[str] = []
        self._all(root, _below(root, inside))
        self.found.facts[f"the list of folders in {root}"] = hash_text(json.dumps(inside))

    def _all(self, name: str, paths: Iterable[str]) -> None:
        for number, path in enumerate(paths):
            if number >= MOST_FILES:
                self._unknown(f"{name!r} names more than {MOST_FILES} files")
                return
            if os.path.isfile(path):  # and no pipe or device, which nobody could read to the end
                self._file(path)

    def _file(self, path: str) -> None:
        if path not in self.files:
            try:
                self.files[path] = self.hashes.of(path)
            except OSError as error:
                self._unknown(f"{path} cannot be read: {error.strerror}")


def _below(root: str, inside: list[str]) -> Iterator[str]:
    """All that lies in a folder, folders in it too; each of these is added to `inside`."""
    seen: set[str] = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        inside.append(f"{folder} {real}" if real in seen else folder)
        # without what Python writes itself, and what a link leads back to
        folders[:] = [] if real in seen else sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.join(folder, name) for name in (*folders, *sorted(names)))
        seen.add(real)


def _spelt(value: Any) -> str:
    """As Python writes it; a whole number that is too long for that by its digits to the base 16."""
    try:
        return repr(value)
    except ValueError:
        items = value if isinstance(value, list | tuple) else [value]
        return " ".join(hex(item) if type(item) is int else repr(item) for item in items)


def differences(facts: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """What has changed, in words."""
    both = [name for name in facts if name in before]
    return [
        *(f"{name} has changed" for name in both if facts[name] != before[name]),
        *(f"{name} is new" for name in facts if name not in before),
        *(f"{name} is gone" for name in before if name not in facts),
    ]
