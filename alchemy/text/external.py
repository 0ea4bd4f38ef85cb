"""Tokenizers that others have made: models of sentencepiece, and folders as Hugging Face has them."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.files import parse_json
from alchemy.optional_packages import import_package
from alchemy.text.backend import Backed, Rust, Spm, Tidy, check_utf8
from alchemy.text.base import ROLES, Tokenizer, content_of
from alchemy.text.bpe import read_inner

# what is read of a folder, and no more
NAMES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SPM = ("spiece.model", "tokenizer.model")
WHOLE, WORDPIECE, MERGES = ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt")

# without a tokenizer.json, only the kind of model tells what else is done to text; of these it is known
TIDY = {"albert": True, "xlnet": False}  # and whether text is made lower-case where nothing is said
FAMILIES = {
    WORDPIECE: ("bert", "distilbert", "electra", "mobilebert", "convbert", "layoutlm", "squeezebert"),
    MERGES: ("gpt2", "roberta", "bart", "longformer", "led"),
    SPM: (*TIDY, "t5", "mt5", "llama", "gemma"),
}
# configs of 2019 do not name their model: what only one kind of model has
TELLTALES = {"num_hidden_groups": "albert", "untie_r": "xlnet", "relative_attention_num_buckets": "t5"}
WRITE = "write its tokenizer.json once: `AutoTokenizer.from_pretrained(path).save_pretrained(path)` of transformers"
# where no file says what the special tokens are called; the keys are those of special_tokens_map.json
SPELLINGS = {
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "bos": (("bos_token", "cls_token"), ("<s>", "[CLS]", "<bos>", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("</s>", "[SEP]", "<eos>", "<|endoftext|>")),
    "unk": (("unk_token",), ("<unk>", "[UNK]", "<|endoftext|>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}

# where models want special tokens around a text, and around two; the number behind a colon is the segment
BERT = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
ROBERTA = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
BY_MODEL = {
    "albert": BERT,
    "xlnet": ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2"),
    "t5": ("$A </s>", "$A </s> $B </s>"),
    "mt5": ("$A </s>", "$A </s> $B </s>"),
    "llama": ("<s> $A", "<s> $A <s>:1 $B:1"),
    "gemma": ("<bos> $A", "<bos> $A <bos>:1 $B:1"),
}
PLAIN = ("$A", "$A $B:1")


@Tokenizer.register()
class SentencePiece(Backed):
    """A model file of sentencepiece. What its normalizer changes does not come back."""

    packages = ("sentencepiece",)
    FILES: ClassVar[Mapping[str, str]] = {"model": "spiece.model"}

    def __init__(self, *, model: str | Path | bytes, multiple: PositiveInt = 1) -> None:
        self.content = content_of(model)
        backend = Spm(self.content, "" if isinstance(model, bytes) else str(model))
        super().__init__(backend, backend.specials, multiple)

    def options(self) -> dict[str, Any]:
        return {"multiple": self.multiple}

    def contents(self) -> dict[str, bytes]:
        return {"spiece.model": self.content}

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        size: int = 8000,
        kind: str = "unigram",
        coverage: float = 0.9995,
        byte_fallback: bool = False,
        multiple: int = 1,
    ) -> Self:
        """Learns at most `size` pieces by `kind`: unigram, bpe, char or word; in one thread, so always the same."""
        model = io.BytesIO()
        try:
            import_package("sentencepiece", cls.__name__).SentencePieceTrainer.train(
                sentence_iterator=(check_utf8(cls.__name__, line) for line in lines),
                model_writer=model,
                vocab_size=size,
                hard_vocab_limit=False,
                model_type=kind,
                character_coverage=coverage,
                byte_fallback=byte_fallback,
                num_threads=1,
                minloglevel=2,
                **{f"{role}_id": place for place, role in enumerate(ROLES)},
            )
        except (RuntimeError, OSError, ValueError) as error:
            raise AlchemyError(f"sentencepiece could not be trained: {error}") from error
        return cls(model=model.getvalue(), multiple=multiple)


@Tokenizer.register()
class Folder(Backed):
    """A folder of Hugging Face: tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece model.

    Without a tokenizer.json, what kind of model it is of tells what else is done to text: its files say it, or
    `model_type`, such as "xlnet". `lower` makes text lower-case, or leaves it as it is, where the files say otherwise.
    With `parse_specials`, special tokens that are spelt out in a text, such as `[MASK]`, are read as such.
    """

    FILES: ClassVar[Mapping[str, str]] = {"path": "."}

    def __init__(
        self,
        *,
        path: str | Path,
        model_type: str = "",
        lower: bool | None = None,
        parse_specials: bool = False,
        multiple: PositiveInt = 1,
    ) -> None:
        self.path, self.lower, self.parse_specials = Path(path), lower, parse_specials
        kind = self._kind()
        names = (*NAMES, *kind)
        self.read = {name: content_of(self.path / name) for name in names if (self.path / name).is_file()}
        self.settings = self._json("tokenizer_config.json")
        self.said = self.settings | self._json("special_tokens_map.json")
        self.model_type = "" if kind == WHOLE else self._family(kind, model_type)
        try:
            backend = self._sentencepiece() if kind == SPM else Rust(self._inner(kind), parse_specials)
            specials = self._specials(backend)
        except AlchemyError:
            raise
        except Exception as error:  # whatever the files of others hold; the package tokenizers raises bare ones
            text = f"the tokenizer in {str(self.path)!r} cannot be read: {error}"
            raise AlchemyError(text, hint="its files are damaged, or do not belong together") from error
        super().__init__(backend, specials, multiple)

    def options(self) -> dict[str, Any]:
        made: dict[str, Any] = {"parse_specials": self.parse_specials, "multiple": self.multiple}
        made |= {"model_type": self.model_type} if self.model_type else {}
        return made if self.lower is None else made | {"lower": self.lower}

    def contents(self) -> dict[str, bytes]:
        return self.read

    def template(self, pair: bool = False) -> str:
        if isinstance(self.backend, Rust) and "tokenizer.json" in self.read:
            return _template_of(self.backend.inner, pair)
        if "vocab.txt" in self.read:
            return BERT[pair]
        if "merges.txt" in self.read:  # of GPT-2, which has none, or of RoBERTa and its like
            return (PLAIN if self.id_of("<s>") is None else ROBERTA)[pair]
        return BY_MODEL[self.model_type][pair]

    def _kind(self) -> tuple[str, ...]:
        if not self.path.is_dir():
            raise AlchemyError(f"there is no folder {str(self.path)!r}")
        for kind in (WHOLE, WORDPIECE, MERGES, SPM):
            there = [name for name in kind if (self.path / name).is_file()]
            if there and (kind == SPM or len(there) == len(kind)):
                return kind
        hint = "it needs tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model or tokenizer.model"
        raise AlchemyError(f"{str(self.path)!r} holds no tokenizer that is known", hint=hint)

    def _family(self, kind: tuple[str, ...], model_type: str) -> str:
        """The kind of model, where it matters; an error where it is none that is known."""
        name = model_type or str(self.settings.get("tokenizer_class") or "") or self._of_model(kind)
        family = name.removesuffix("Fast").removesuffix("Tokenizer").lower().replace("-", "")
        if name and family not in FAMILIES[kind]:
            hint = f"known without it are {', '.join(FAMILIES[kind])}; {WRITE}"
            raise AlchemyError(f"{str(self.path)!r} is of a {name}, which needs its tokenizer.json", hint=hint)
        if kind == SPM and not name:
            text = f"nothing in {str(self.path)!r} says what its tokenizer does beside its model of sentencepiece"
            raise AlchemyError(text, hint=f"give model_type = one of {', '.join(FAMILIES[SPM])}; or {WRITE}")
        return family if kind == SPM else ""

    def _of_model(self, kind: tuple[str, ...]) -> str:
        """What the config of the model says, which may lie beside."""
        name = "config.json"
        found = self._json(name, content_of(self.path / name)) if (self.path / name).is_file() else {}
        told = (family for key, family in TELLTALES.items() if key in found)
        # the model says nothing of a vocab.txt: many of ALBERT or RoBERTa have one in Chinese, and cut as BERT does
        of_model = "" if kind == WORDPIECE else found.get("model_type") or next(told, "")
        return str(found.get("tokenizer_class") or of_model)

    def _inner(self, kind: tuple[str, ...]) -> Any:
        if kind == WHOLE:
            inner = read_inner(self.read["tokenizer.json"], f"Folder {str(self.path)!r}")
            if self.lower is not None:
                self._set_lower(inner)
            return inner
        if kind == MERGES and self.lower is not None:
            raise self._no_case()
        inner = _wordpiece(self) if kind == WORDPIECE else _merges(self)
        self._add(inner)
        return inner

    def _set_lower(self, inner: Any) -> None:
        if type(inner.normalizer).__name__ != "BertNormalizer":
            raise self._no_case()
        inner.normalizer.lowercase = self.lower

    def _no_case(self) -> AlchemyError:
        text = f"lower = {self.lower} is for BERT, ALBERT and XLNet, and {str(self.path)!r} is of another kind"
        return AlchemyError(text, hint="leave lower out, or make text lower-case with a pipe before")

    def _sentencepiece(self) -> Spm:
        if self.parse_specials:
            text = f"parse_specials: the model of sentencepiece in {str(self.path)!r} cannot do that"
            raise AlchemyError(text, hint=WRITE)
        if self.lower is not None and self.model_type not in TIDY:
            raise self._no_case()
        content = next(self.read[name] for name in SPM if name in self.read)
        backend = Spm(content, str(self.path), self._tidy())
        strange = [token for token, place in self._added().items() if backend.id_of(token) != place]
        if strange:
            text = f"the added token {strange[0]!r} is not in the model of sentencepiece"
            raise AlchemyError(text, where=str(self.path), hint=WRITE)
        return backend

    def _tidy(self) -> Tidy | None:
        if self.model_type not in TIDY:
            return None
        lower = self.settings.get("do_lower_case", TIDY[self.model_type]) if self.lower is None else self.lower
        return Tidy(lower, self.settings.get("keep_accents", False))

    def _added(self) -> dict[str, int]:
        """Tokens that were added to the vocabulary later, and may stand in a text."""
        newer = self.settings.get("added_tokens_decoder", {}).items()
        listed = {_spelling(token): int(place) for place, token in newer if not token.get("special")}
        return listed | self._json("added_tokens.json")

    def _add(self, inner: Any) -> None:
        """Special tokens, and those added to the vocabulary later, which must get the ids that the folder says."""
        added = self._added()
        inner.add_special_tokens([*self._spelt(inner.token_to_id).values()])
        inner.add_tokens(sorted(added, key=added.__getitem__))
        wrong = [token for token, place in added.items() if inner.token_to_id(token) != place]
        if wrong:
            text = f"the added token {wrong[0]!r} does not get its id {added[wrong[0]]}"
            raise AlchemyError(text, where=str(self.path / "added_tokens.json"))

    def _spelt(self, id_of: Callable[[str], int | None], known: Collection[str] = ()) -> dict[str, str]:
        """How the special tokens are spelt, by role; roles that are `known` are not guessed."""
        found: dict[str, str] = {}
        for role, (keys, common) in SPELLINGS.items():
            named = [_spelling(self.said[key]) for key in keys if self.said.get(key)]
            there = [symbol for symbol in named or (() if role in known else common) if id_of(symbol) is not None]
            found |= {role: there[0]} if there else {}
        return found

    def _specials(self, backend: Rust | Spm) -> dict[str, int]:
        own = backend.specials if isinstance(backend, Spm) else {}
        spelt = self._spelt(backend.id_of, own)
        return own | {role: place for role, symbol in spelt.items() if (place := backend.id_of(symbol)) is not None}

    def _json(self, name: str, content: bytes | None = None) -> dict[str, Any]:
        try:
            return dict(parse_json(self.read.get(name, b"{}") if content is None else content))
        except (ValueError, TypeError) as error:
            raise AlchemyError(f"it is no JSON: {error}", where=str(self.path / name)) from error

    def text(self, name: str) -> str:
        """A file of the folder that is text."""
        try:
            return self.read[name].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise AlchemyError(f"it is no UTF-8: {error}", where=str(self.path / name)) from error


def _wordpiece(folder: Folder) -> Any:
    tokenizers, settings = import_package("tokenizers", "Folder"), folder.settings
    symbols = folder.text("vocab.txt").rstrip("\n").split("\n")
    vocab = {symbol.rstrip("\r"): place for place, symbol in enumerate(symbols)}
    unknown = _spelling(folder.said.get("unk_token") or "[UNK]")
    if unknown not in vocab:
        text = f"there is no {unknown}, which the vocabulary of BERT and its like has"
        raise AlchemyError(text, where=str(folder.path / "vocab.txt"), hint=WRITE)
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unknown))
    inner.normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True) if folder.lower is None else folder.lower,
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner


def _merges(folder: Folder) -> Any:
    tokenizers, vocab = import_package("tokenizers", "Folder"), folder._json("vocab.json")
    if any(symbol.endswith("</w>") for symbol in vocab):
        raise AlchemyError(f"{str(folder.path)!r} has merges of characters, not of bytes as GPT-2", hint=WRITE)
    lines = folder.text("merges.txt").split("\n")
    merges = [tuple(line.split()) for line in lines if line.strip() and not line.startswith("#version")]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    prefix = bool(folder.settings.get("add_prefix_space", False))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner


def _template_of(inner: Any, pair: bool) -> str:
    """What a tokenizer of the package tokenizers puts around texts, as it shows with one.

    Tokens of the same text stand next to each other, and are one `$A` or `$B`.
    """
    row = inner.encode("a", "a") if pair else inner.encode("a")
    words: list[str] = []
    for token, text, segment in zip(row.tokens, row.sequence_ids, row.type_ids):
        name = token if text is None else ("$A", "$B")[text]
        word = f"{name}:{segment}" if segment else name
        if text is None or not words or words[-1] != word:
            words.append(word)
    return " ".join(words)


def _spelling(token: object) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
