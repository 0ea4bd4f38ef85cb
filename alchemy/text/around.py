"""Where the models of others want special tokens around a text or two, as templates of `Encode`."""

from __future__ import annotations

from typing import Any

# of a text, and of two; the number behind a colon is the segment
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


def shown_by(inner: Any, pair: bool) -> str:
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
