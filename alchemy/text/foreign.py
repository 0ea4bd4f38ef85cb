"""Tokenizers that others have made: models of sentencepiece, and folders as Hugging Face has them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from alchemy.errors import AlchemyError
from alchemy.text.backend import Backed, Rust, Spm
from alchemy.text.base import ROLES, Tokenizer, content_of, package
from alchemy.text.bpe import read_inner

# what is read of a folder, and no more
NAMES = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
SPM = ("spiece.model", "tokenizer.model")
WHOLE, WORDPIECE, MERGES = ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt")

# without a tokenizer.json, only the class of the tokenizer tells what else it does to text; of these it is known
PLAIN_CLASSES = {
    WORDPIECE: ("Bert", "DistilBert", "Electra", "MobileBert", "ConvBert", "LayoutLM", "SqueezeBert"),
    MERGES: ("GPT2", "Roberta", "Bart", "Longformer", "LED"),
    SPM: ("T5", "MT5", "Llama", "Gemma"),
}
# where no file says what the special tokens are called; the keys are those of special_tokens_map.json
SPELLINGS = {
    "pad": (("pad_token",), ("<pad>", "[PAD]")),
    "bos": (("bos_token", "cls_token"), ("<s>", "[CLS]", "<bos>", "<|endoftext|>")),
    "eos": (("eos_token", "sep_token"), ("</s>", "[SEP]", "<eos>", "<|endoftext|>")),
    "unk": (("unk_token",), ("<unk>", "[UNK]", "<|endoftext|>")),
}


@Tokenizer.register()
class SentencePiece(Backed):
    """A model file of sentencepiece. What its normaliser changes does not come back."""

    FILES: ClassVar[Mapping[str, str]] = {"model": "spiece.model"}

    def __init__(self, *, model: str | Path | bytes, multiple: int = 1) -> None:
        self.content = content_of(model)
        backend = _pieces(self.content, "" if isinstance(model, bytes) else str(model))
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
            package("sentencepiece", cls.__name__).SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
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
        except (RuntimeError, OSError) as error:
            raise AlchemyError(f"sentencepiece could not be trained: {error}") from error
        return cls(model=model.getvalue(), multiple=multiple)


@Tokenizer.register()
class Folder(Backed):
    """A folder of Hugging Face: tokenizer.json, vocab.txt, vocab.json with merges.txt, or a sentencepiece model.

    With `parse_specials`, special tokens that are spelt out in a text, such as `[MASK]`, are read as such.
    """

    FILES: ClassVar[Mapping[str, str]] = {"path": "."}

    def __init__(self, *, path: str | Path, parse_specials: bool = False, multiple: int = 1) -> None:
        self.path, self.parse_specials = Path(path), parse_specials
        kind = self._kind()
        names = (*NAMES, *kind)
        self.read = {name: content_of(self.path / name) for name in names if (self.path / name).is_file()}
        self.settings = self._json("tokenizer_config.json")
        if kind == SPM:
            self._check_class(kind)
            backend = _pieces(next(self.read[name] for name in SPM if name in self.read), str(self.path))
            super().__init__(backend, backend.specials, multiple)
        else:
            inner = self._inner(kind)
            super().__init__(Rust(inner, parse_specials), self._specials(inner), multiple)

    def options(self) -> dict[str, Any]:
        return {"parse_specials": self.parse_specials, "multiple": self.multiple}

    def contents(self) -> dict[str, bytes]:
        return self.read

    def _kind(self) -> tuple[str, ...]:
        if not self.path.is_dir():
            raise AlchemyError(f"there is no folder {str(self.path)!r}")
        for kind in (WHOLE, WORDPIECE, MERGES, SPM):
            there = [name for name in kind if (self.path / name).is_file()]
            if there and (kind == SPM or len(there) == len(kind)):
                return kind
        hint = "it needs tokenizer.json, vocab.txt, vocab.json with merges.txt, spiece.model or tokenizer.model"
        raise AlchemyError(f"{str(self.path)!r} holds no tokenizer that is known", hint=hint)

    def _inner(self, kind: tuple[str, ...]) -> Any:
        if kind == WHOLE:
            return read_inner(self.read["tokenizer.json"], f"Folder {str(self.path)!r}")
        self._check_class(kind)
        inner = _wordpiece(self) if kind == WORDPIECE else _merges(self)
        self._add(inner)
        return inner

    def _check_class(self, kind: tuple[str, ...]) -> None:
        name = str(self.settings.get("tokenizer_class") or "")
        if name and name.removesuffix("Fast").removesuffix("Tokenizer") not in PLAIN_CLASSES[kind]:
            raise AlchemyError(
                f"{str(self.path)!r} is of a {name}, which needs its tokenizer.json",
                hint="write that once: `AutoTokenizer.from_pretrained(path).save_pretrained(path)` of transformers",
            )

    def _add(self, inner: Any) -> None:
        """Special tokens, and those added to the vocabulary later, which must get the ids that the folder says."""
        added = self._json("added_tokens.json")
        inner.add_special_tokens([*self._spelt(inner).values()])
        inner.add_tokens(sorted(added, key=added.__getitem__))
        wrong = [token for token, place in added.items() if inner.token_to_id(token) != place]
        if wrong:
            text = f"the added token {wrong[0]!r} does not get its id {added[wrong[0]]}"
            raise AlchemyError(text, where=str(self.path / "added_tokens.json"))

    def _spelt(self, inner: Any) -> dict[str, str]:
        """How the special tokens are spelt, by role."""
        said = self.settings | self._json("special_tokens_map.json")
        found: dict[str, str] = {}
        for role, (keys, common) in SPELLINGS.items():
            named = [_spelling(said[key]) for key in keys if said.get(key)]
            known = [symbol for symbol in named or common if inner.token_to_id(symbol) is not None]
            found |= {role: known[0]} if known else {}
        return found

    def _specials(self, inner: Any) -> dict[str, int]:
        return {role: inner.token_to_id(symbol) for role, symbol in self._spelt(inner).items()}

    def _json(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self.read.get(name, b"{}")))
        except ValueError as error:
            raise AlchemyError(f"it is no JSON: {error}", where=str(self.path / name)) from error


def _wordpiece(folder: Folder) -> Any:
    tokenizers, settings = package("tokenizers", "Folder"), folder.settings
    symbols = folder.read["vocab.txt"].decode("utf-8").rstrip("\n").split("\n")
    vocab = {symbol.rstrip("\r"): place for place, symbol in enumerate(symbols)}
    unknown = _spelling(settings.get("unk_token", "[UNK]"))
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unknown))
    inner.normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    inner.decoder = tokenizers.decoders.WordPiece()
    return inner


def _merges(folder: Folder) -> Any:
    tokenizers = package("tokenizers", "Folder")
    lines = folder.read["merges.txt"].decode("utf-8").split("\n")
    merges = [tuple(line.split()) for line in lines if line.strip() and not line.startswith("#version")]
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(folder._json("vocab.json"), merges))
    prefix = bool(folder.settings.get("add_prefix_space", False))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    inner.decoder = tokenizers.decoders.ByteLevel()
    return inner


def _pieces(content: bytes, name: str) -> Spm:
    try:
        return Spm(content, "SentencePiece")
    except RuntimeError as error:
        raise AlchemyError("it is no model of sentencepiece", where=name) from error


def _spelling(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)
