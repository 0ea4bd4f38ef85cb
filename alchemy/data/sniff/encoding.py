"""Detect the encoding of text files."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

from alchemy.data.files import open_bytes, readable
from alchemy.errors import AlchemyError

MOST_BYTES = 2**23  # number of bytes of a file to examine
SCORED = 2**18  # number of bytes of non-ASCII lines used to score encodings
ENOUGH = 0.7  # minimum share of non-ASCII characters that are common in an encoding
KOREAN_FROM = 30  # characters; shorter text may be Chinese that uses only the first half of the code table
JAPANESE = ("euc_jp", "cp932")
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # must precede UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook: save the sheet as csv (UTF-8)",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file: save it as csv (UTF-8)",
    b"%PDF": "a PDF: extract its text first",
    b"PAR1": "a Parquet file: rename it to .parquet",
    b"\x1f\x8b": "a gzip file: rename it to .gz",
    b"\xfd7zXZ": "an xz file: rename it to .xz",
    b"BZh": "a bzip2 file: rename it to .bz2",
    b"\x28\xb5\x2f\xfd": "a zstandard file: rename it to .zst",
    b"SQLite": "an SQLite database: export the table as csv",
}


def read_head(path: Path, most: int = MOST_BYTES) -> tuple[bytes, bool]:
    """Return the first bytes of a file, decompressed, and whether they are the whole file."""
    with readable(path, 1), open_bytes(path) as file:
        head = file.read(most + 1)
    return head[:most], len(head) <= most


def detect_encoding(path: Path) -> str:
    """Return the encoding of a text file; raise if the file is not text or its encoding cannot be detected."""
    head, whole = read_head(path)
    found = guess_encoding(head, whole)
    if found:
        return found
    what = next((what for magic, what in OTHERS.items() if head.startswith(magic)), "")
    if what or b"\0" in head:
        raise AlchemyError(f"{path} is not a text file", hint=f"it looks like {what}" if what else "")
    if broken := _find_broken_utf8(head):
        line, text = broken
        hint = "fix the bytes, or set the encoding with --encoding"
        raise AlchemyError(f"is UTF-8 text with invalid bytes: {text}", where=f"{path}:{line}", hint=hint)
    hint = "set it with --encoding, for example cp1251, koi8-r or shift_jis"
    raise AlchemyError(f"{path} is not UTF-8, and its encoding cannot be detected", hint=hint)


def guess_encoding(head: bytes, whole: bool = True) -> str:
    """Guess the encoding of bytes; return "" if it cannot be detected.

    UTF-8 is tried first, because text in another encoding is rarely valid UTF-8. East Asian encodings are distinguished
    by the share of characters that are common in them. Text with few non-ASCII letters is assumed to be Western
    European.

    >>> guess_encoding("价格,真的".encode()), guess_encoding("价格,真的".encode("gbk"))
    ('utf-8', 'gb18030')
    >>> guess_encoding(b"caf\\xe9 noir")
    'cp1252'
    """
    for mark, name in MARKS.items():
        if head.startswith(mark):
            return name if _decode(head, name, whole) is not None else ""
    if b"\0" in head:
        return _guess_utf16(head, whole)
    if _decode(head, "utf-8", whole) is not None:
        return "utf-8"
    if _find_broken_utf8(head):
        return ""
    sample = b"\n".join(line for line in head.split(b"\n") if not line.isascii())[:SCORED]
    scores = {name: _score_encoding(sample, name) for name in ("gb18030", "big5", "euc_jp", "cp932", "cp949")}
    high = sum(byte > 0x7F for byte in sample) // 2
    if (
        scores["cp949"] == scores["gb18030"] and high < KOREAN_FROM
    ):  # Hangul shares its code range with Chinese characters
        scores["cp949"] = 0.0
    for name in sorted(scores, key=lambda name: (-scores[name], name != "cp949")):
        if scores[name] >= ENOUGH and _decode(head, name, whole) is not None:
            return name
    return _guess_western(sample)


def _decode(head: bytes, encoding: str, whole: bool) -> str | None:
    """Return the decoded text, or None if it is invalid; drop an incomplete character at the end."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, final=whole)
    except UnicodeError:
        return None


def _guess_utf16(head: bytes, whole: bool) -> str:
    """Detect UTF-16 without a BOM: in the right byte order, it has ASCII but no control characters."""
    found = {}
    for name in ("utf-16-le", "utf-16-be"):
        text = _decode(head, name, whole)
        if text and not _has_controls(text):
            found[name] = sum(sign <= "\x7f" for sign in text)
    best = max(found, key=lambda name: found[name], default="")
    return best if best and found[best] else ""


def _has_controls(text: str) -> bool:
    return any(sign < " " and sign not in "\t\n\r\f" for sign in text)


def _find_broken_utf8(head: bytes) -> tuple[int, str] | None:
    """Return the line and context of the first invalid byte, if nearly all non-ASCII characters are valid UTF-8."""
    text = head.decode("utf-8", errors="replace")
    if "\ufffd" not in text:
        return None
    good = sum(sign > "\x7f" and sign != "\ufffd" for sign in text)
    if text.count("\ufffd") * 20 > good:
        return None
    place = text.index("\ufffd")
    return text.count("\n", 0, place) + 1, repr(text[max(place - 10, 0) : place + 10])


def _score_encoding(sample: bytes, encoding: str) -> float:
    """Return the share of non-ASCII characters that are common in text with the given encoding."""
    text = _decode(sample, encoding, False)
    beyond = [sign for sign in text or "" if sign > "\x7f"]
    if not text or not beyond or (encoding in JAPANESE and not any("\u3041" <= sign <= "\u30ff" for sign in beyond)):
        return 0.0
    inside = sum(sign > "\x7f" and before.isascii() and before.isalpha() for before, sign in pairwise(text))
    if inside * 2 > len(beyond):  # inside words: accented letters that were decoded together with the next letter
        return 0.0
    common = _common_characters(encoding)
    return sum(sign in common for sign in beyond) / len(beyond)


@cache
def _common_characters(encoding: str) -> frozenset[str]:
    """Return the most common characters: the first level of the standard, its punctuation, and kana."""
    zones = {
        "gb18030": [(0xA1A1, 0xA1FE), (0xA3A1, 0xA3FE), (0xB0A1, 0xD7F9)],
        "big5": [(0xA140, 0xA3BF), (0xA440, 0xC67E)],
        "euc_jp": [(0xA1A1, 0xA5FE), (0xB0A1, 0xCFD3)],
        "cp932": [(0x8140, 0x8396), (0x889F, 0x9872)],
        "cp949": [(0xA1A1, 0xA3FE), (0xB0A1, 0xC8FE)],
    }
    found = frozenset(_decode_zones(zones[encoding], encoding))
    # gb18030 also contains the traditional characters
    return found | _common_characters("big5") if encoding == "gb18030" else found


def _decode_zones(zones: Iterable[tuple[int, int]], encoding: str) -> Iterator[str]:
    for first, last in zones:
        for code in range(first, last + 1):
            sign = code.to_bytes(2, "big").decode(encoding, errors="ignore")
            if len(sign) == 1:
                yield sign


def _guess_western(sample: bytes) -> str:
    """Detect Latin text with some accents; most letters of Cyrillic, Greek or Arabic text would be non-ASCII."""
    high = sum(byte > 0x7F for byte in sample)
    letters = sum(byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" for byte in sample)
    if high * 3 > letters:
        return ""
    if _decode(sample, "cp1252", True) is not None:
        return "cp1252"
    return "" if any(0x80 <= byte < 0xA0 for byte in sample) else "latin-1"
