"""Tokenizers from other programs: sentencepiece models and Hugging Face folders."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.files import parse_json
from alchemy.optional_packages import import_package
from alchemy.text.backend import BackendTokenizer, Rust, Spm, TextCleaner, check_utf8
from alchemy.text.base import ROLES, Tokenizer, read_content
from alchemy.text.bpe import parse_tokenizer_json

# the only files that are read from a folder
NAMES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SPM = ("spiece.model", "tokenizer.model")
WHOLE, WORDPIECE, MERGES = ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt")

# without a tokenizer.json, the preprocessing depends on the model family; these are supported
LOWER_DEFAULT = {"albert": True, "xlnet": False}  # families with a TextCleaner, and whether they lowercase by default
FAMILIES = {
    WORDPIECE: ("bert", "distilbert", "electra", "mobilebert", "convbert", "layoutlm", "squeezebert"),
    MERGES: ("gpt2", "roberta", "bart", "longformer", "led"),
    SPM: (*LOWER_DEFAULT, "t5", "mt5", "llama", "gemma"),
}
# config files from 2019 do not specify the model type, but each of these keys is unique to one family
FAMILY_KEYS = {"num_hidden_groups": "albert", "untie_r": "xlnet", "relative_attention_num_buckets": "t5"}
CREATE_HINT = "create a tokenizer.json with transformers: `AutoTokenizer.from_pretrained(path).save_pretrained(path)`"
# keys of special_tokens_map.json, and common spellings for folders without it
SPELLINGS = {
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "bos": (("bos_token", "cls_token"), ("<s>", "[CLS]", "<bos>", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("</s>", "[SEP]", "<eos>", "<|endoftext|>")),
    "unk": (("unk_token",), ("<unk>", "[UNK]", "<|endoftext|>")),
    "mask": (("mask_token",), ("[MASK]", "<mask>")),
}

# templates for one text and for a pair; the number after a colon is the segment id
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
class SentencePiece(BackendTokenizer):
    """A sentencepiece model. Decoding does not undo its normalization."""

    packages = ("sentencepiece",)
    FILES: ClassVar[Mapping[str, str]] = {"model": "spiece.model"}

    def __init__(self, *, model: str | Path | bytes, multiple: PositiveInt = 1) -> None:
        self.content = read_content(model)
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
        """Train a model with at most `size` pieces, deterministically; `kind` is unigram, bpe, char or word."""
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
            raise AlchemyError(f"cannot train sentencepiece: {error}") from error
        return cls(model=model.getvalue(), multiple=multiple)


@Tokenizer.register()
class Folder(BackendTokenizer):
    """A Hugging Face folder: tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece model.

    Without a tokenizer.json, the preprocessing depends on the model type, which is read from the files or from
    `model_type`, such as "xlnet". `lower` overrides the lowercasing setting of the files. With `parse_specials`,
    special tokens in a text, such as `[MASK]`, are parsed.
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
        kind = self._find_kind()
        names = (*NAMES, *kind)
        self.read = {name: read_content(self.path / name) for name in names if (self.path / name).is_file()}
        self.settings = self._json("tokenizer_config.json")
        self.token_names = self.settings | self._json("special_tokens_map.json")
        self.model_type = "" if kind == WHOLE else self._find_family(kind, model_type)
        try:
            backend = self._sentencepiece() if kind == SPM else Rust(self._inner(kind), parse_specials)
            specials = self._special_ids(backend)
        except AlchemyError:
            raise
        except Exception as error:  # invalid files; the tokenizers package raises plain Exceptions
            text = f"cannot read the tokenizer in {str(self.path)!r}: {error}"
            raise AlchemyError(text, hint="its files are damaged or do not belong together") from error
        super().__init__(backend, specials, multiple)

    def options(self) -> dict[str, Any]:
        made: dict[str, Any] = {"parse_specials": self.parse_specials, "multiple": self.multiple}
        made |= {"model_type": self.model_type} if self.model_type else {}
        return made if self.lower is None else made | {"lower": self.lower}

    def contents(self) -> dict[str, bytes]:
        return self.read

    def template(self, pair: bool = False) -> str:
        if isinstance(self.backend, Rust) and "tokenizer.json" in self.read:
            return _find_template(self.backend.inner, pair)
        if "vocab.txt" in self.read:
            return BERT[pair]
        if "merges.txt" in self.read:  # GPT-2, which adds no special tokens, or RoBERTa and similar models
            return (PLAIN if self.id_of("<s>") is None else ROBERTA)[pair]
        return BY_MODEL[self.model_type][pair]

    def _find_kind(self) -> tuple[str, ...]:
        if not self.path.is_dir():
            raise AlchemyError(f"there is no folder {str(self.path)!r}")
        for kind in (WHOLE, WORDPIECE, MERGES, SPM):
            present = [name for name in kind if (self.path / name).is_file()]
            if present and (kind == SPM or len(present) == len(kind)):
                return kind
        hint = "expected tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model or tokenizer.model"
        raise AlchemyError(f"no supported tokenizer in {str(self.path)!r}", hint=hint)

    def _find_family(self, kind: tuple[str, ...], model_type: str) -> str:
        """Return the model family, or "" if preprocessing does not depend on it; raise if it is not supported."""
        name = model_type or str(self.settings.get("tokenizer_class") or "") or self._read_model_config(kind)
        family = name.removesuffix("Fast").removesuffix("Tokenizer").lower().replace("-", "")
        if name and family not in FAMILIES[kind]:
            hint = f"only {', '.join(FAMILIES[kind])} work without one; {CREATE_HINT}"
            raise AlchemyError(f"{name} requires a tokenizer.json, which is missing from {str(self.path)!r}", hint=hint)
        if kind == SPM and not name:
            text = f"cannot determine the model type of the sentencepiece model in {str(self.path)!r}"
            raise AlchemyError(text, hint=f"set model_type to one of {', '.join(FAMILIES[SPM])}; or {CREATE_HINT}")
        return family if kind == SPM else ""

    def _read_model_config(self, kind: tuple[str, ...]) -> str:
        """Return the tokenizer class or model type from the model's config.json, if any."""
        name = "config.json"
        found = self._json(name, read_content(self.path / name)) if (self.path / name).is_file() else {}
        hints = (family for key, family in FAMILY_KEYS.items() if key in found)
        # ignored for a vocab.txt: many Chinese ALBERT and RoBERTa models have one and tokenize like BERT
        of_model = "" if kind == WORDPIECE else found.get("model_type") or next(hints, "")
        return str(found.get("tokenizer_class") or of_model)

    def _inner(self, kind: tuple[str, ...]) -> Any:
        if kind == WHOLE:
            inner = parse_tokenizer_json(self.read["tokenizer.json"], f"Folder {str(self.path)!r}")
            if self.lower is not None:
                self._set_lower(inner)
            return inner
        if kind == MERGES and self.lower is not None:
            raise self._lower_error()
        inner = _build_wordpiece(self) if kind == WORDPIECE else _build_byte_bpe(self)
        self._add_tokens(inner)
        return inner

    def _set_lower(self, inner: Any) -> None:
        if type(inner.normalizer).__name__ != "BertNormalizer":
            raise self._lower_error()
        inner.normalizer.lowercase = self.lower

    def _lower_error(self) -> AlchemyError:
        text = f"lower = {self.lower} requires BERT, ALBERT or XLNet, but {str(self.path)!r} is a different tokenizer"
        return AlchemyError(text, hint="remove lower, or lowercase the text in an earlier pipe")

    def _sentencepiece(self) -> Spm:
        if self.parse_specials:
            text = f"parse_specials is not supported for the sentencepiece model in {str(self.path)!r}"
            raise AlchemyError(text, hint=CREATE_HINT)
        if self.lower is not None and self.model_type not in LOWER_DEFAULT:
            raise self._lower_error()
        content = next(self.read[name] for name in SPM if name in self.read)
        backend = Spm(content, str(self.path), self._cleaner())
        missing = [token for token, place in self._added_tokens().items() if backend.id_of(token) != place]
        if missing:
            text = f"the added token {missing[0]!r} is not in the sentencepiece model"
            raise AlchemyError(text, where=str(self.path), hint=CREATE_HINT)
        return backend

    def _cleaner(self) -> TextCleaner | None:
        if self.model_type not in LOWER_DEFAULT:
            return None
        lower = self.settings.get("do_lower_case", LOWER_DEFAULT[self.model_type]) if self.lower is None else self.lower
        return TextCleaner(lower, self.settings.get("keep_accents", False))

    def _added_tokens(self) -> dict[str, int]:
        """Return the ids of tokens that were added to the vocabulary, except special tokens."""
        newer = self.settings.get("added_tokens_decoder", {}).items()
        listed = {_token_text(token): int(place) for place, token in newer if not token.get("special")}
        return listed | self._json("added_tokens.json")

    def _add_tokens(self, inner: Any) -> None:
        """Add the special and added tokens; raise an error if an added token gets a different id than in the folder."""
        added = self._added_tokens()
        inner.add_special_tokens([*self._special_symbols(inner.token_to_id).values()])
        inner.add_tokens(sorted(added, key=added.__getitem__))
        wrong = [token for token, place in added.items() if inner.token_to_id(token) != place]
        if wrong:
            text = f"the added token {wrong[0]!r} cannot be assigned id {added[wrong[0]]}"
            raise AlchemyError(text, where=str(self.path / "added_tokens.json"))

    def _special_symbols(self, id_of: Callable[[str], int | None], known: Collection[str] = ()) -> dict[str, str]:
        """Return the spelling of the special tokens by role; spellings of `known` roles are not guessed."""
        found: dict[str, str] = {}
        for role, (keys, common) in SPELLINGS.items():
            named = [_token_text(self.token_names[key]) for key in keys if self.token_names.get(key)]
            present = [symbol for symbol in named or (() if role in known else common) if id_of(symbol) is not None]
            found |= {role: present[0]} if present else {}
        return found

    def _special_ids(self, backend: Rust | Spm) -> dict[str, int]:
        own = backend.specials if isinstance(backend, Spm) else {}
        symbols = self._special_symbols(backend.id_of, own)
        return own | {role: place for role, symbol in symbols.items() if (place := backend.id_of(symbol)) is not None}

    def _json(self, name: str, content: bytes | None = None) -> dict[str, Any]:
        try:
            return dict(parse_json(self.read.get(name, b"{}") if content is None else content))
        except (ValueError, TypeError) as error:
            raise AlchemyError(f"not valid JSON: {error}", where=str(self.path / name)) from error

    def text(self, name: str) -> str:
        """Return the text of a file in the folder."""
        try:
            return self.read[name].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise AlchemyError(f"not valid UTF-8: {error}", where=str(self.path / name)) from error


def _build_wordpiece(folder: Folder) -> Any:
    tokenizers, settings = import_package("tokenizers", "Folder"), folder.settings
    symbols = folder.text("vocab.txt").rstrip("\n").split("\n")
    vocab = {symbol.rstrip("\r"): place for place, symbol in enumerate(symbols)}
    unknown = _token_text(folder.token_names.get("unk_token") or "[UNK]")
    if unknown not in vocab:
        text = f"missing {unknown}, which a BERT vocabulary must contain"
        raise AlchemyError(text, where=str(folder.path / "vocab.txt"), hint=CREATE_HINT)
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unknown))
    inner.normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True) if folder.lower is None else folder.lower,
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner


def _build_byte_bpe(folder: Folder) -> Any:
    tokenizers, vocab = import_package("tokenizers", "Folder"), folder._json("vocab.json")
    if any(symbol.endswith("</w>") for symbol in vocab):
        raise AlchemyError(
            f"{str(folder.path)!r} contains character merges; only byte-level merges, as in GPT-2, are supported",
            hint=CREATE_HINT,
        )
    lines = folder.text("merges.txt").split("\n")
    merges = [tuple(line.split()) for line in lines if line.strip() and not line.startswith("#version")]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, merges))
    prefix = bool(folder.settings.get("add_prefix_space", False))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner


def _find_template(inner: Any, pair: bool) -> str:
    """Determine the template of a tokenizer by encoding a sample text.

    Consecutive tokens of the same text become one `$A` or `$B`.
    """
    row = inner.encode("a", "a") if pair else inner.encode("a")
    words: list[str] = []
    for token, text, segment in zip(row.tokens, row.sequence_ids, row.type_ids):
        name = token if text is None else ("$A", "$B")[text]
        word = f"{name}:{segment}" if segment else name
        if text is None or not words or words[-1] != word:
            words.append(word)
    return " ".join(words)


def _token_text(token: object) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
