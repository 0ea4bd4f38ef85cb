"""Results of data detection: config keys for the files, and lines that describe them."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from alchemy.data.messages import in_short, shorten
from alchemy.data.sniff.layout import SniffedTable

FEWEST = 50  # rows; fewer are enough to try a config, but not to train a model
SAMPLED = 20_000  # number of texts used to detect the script
UNBALANCED = 20  # ratio of the most frequent to the rarest label


@dataclass
class Finding:
    """The detected keys of `[task]` and `[task.data]`, and a description of the data."""

    task: dict[str, Any]
    shared: dict[str, Any]
    splits: dict[str, dict[str, Any]]  # `path`, and the keys that differ from `shared`
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    question: str = ""  # an example input for the model
    other: str = ""  # the second text of a pair
    sizes: dict[str, int] = field(default_factory=dict)  # for a large file, the number of rows examined
    large: set[str] = field(default_factory=set)  # splits with more rows than were examined
    unit: str = "rows"

    def format_size(self, split: str) -> str:
        """Format the size of a split, such as `20,000 rows`."""
        return f"{'more than ' if split in self.large else ''}{self.sizes[split]:,} {self.unit}"


@dataclass(frozen=True)
class Hints:
    """User settings that override detection; "" means not set."""

    text: str = ""
    pair: str = ""
    label: str = ""
    source: str = ""
    target: str = ""
    encoding: str = ""


def layout_keys(table: SniffedTable) -> dict[str, Any]:
    """Return the config keys for the format of a table, except those that have their default value."""
    layout = table.layout
    keys: dict[str, Any] = {"format": layout.format} if layout.format else {}
    if layout.delimiter:
        keys["delimiter"] = layout.delimiter
    if layout.quote is not None:
        keys["quote"] = layout.quote
    if layout.encoding != "utf-8":
        keys["encoding"] = layout.encoding
    return keys


DEFAULTS = {"format": "", "delimiter": "", "encoding": "utf-8", "header": None, "quote": None, "bad": "error"}


def merge_keys(paths: Mapping[str, list[Path]], keys: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the path of each split and the keys that differ from the training data."""
    shared = keys["train"]
    merged: dict[str, dict[str, Any]] = {}
    for split, own in keys.items():
        differs = {name: value for name, value in own.items() if shared.get(name, DEFAULTS.get(name)) != value}
        differs |= {name: DEFAULTS[name] for name in shared.keys() - own.keys() if DEFAULTS.get(name) is not None}
        files = [path.as_posix() for path in paths[split]]
        merged[split] = {"path": files[0] if len(files) == 1 else files, **differs}
    return merged


def uses_characters(texts: Sequence[str]) -> bool:
    """Return whether the text is mostly in a script without spaces between words, such as Chinese or Thai.

    >>> uses_characters(["NBA总决赛 第六场"]), uses_characters(["the match"]), uses_characters(["오늘은 날씨가"])
    (True, False, False)
    """
    signs = Counter(sign for text in texts[:SAMPLED] for sign in text if sign.isalpha())
    dense = sum(count for sign, count in signs.items() if _is_dense(sign))
    return dense * 3 > sum(signs.values())


def _is_dense(sign: str) -> bool:
    return sign > "\u0e00" and unicodedata.name(sign, "").startswith(
        ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER")
    )


def tokenizer_keys(texts: Sequence[str]) -> dict[str, Any]:
    """Return the config keys of a tokenizer that suits the script."""
    if uses_characters(texts):
        return {"tokenizer": "Characters"}
    return {"tokenizer": "Words", "learn": {"lower": True}}


def measure_lengths(texts: Sequence[str], characters: bool) -> tuple[int, int, int]:
    """Return the median, 95th percentile and maximum of the lengths, in characters or words."""
    lengths = sorted(len(text) if characters else len(text.split()) for text in texts)
    last = len(lengths) - 1
    return lengths[last // 2], lengths[round(last * 0.95)], lengths[last]


def format_lengths(lengths: tuple[int, int, int], characters: bool) -> str:
    median, most, longest = lengths
    return f"{median:,} {'characters' if characters else 'words'} (median), {most:,} (95%), {longest:,} (max)"


def format_labels(labels: Counter[str], most: int = 10) -> str:
    """Format label counts as `15 labels: sport 2,000, money 1,998, ..`"""
    listed = ", ".join(f"{shorten_text(label, 20)} {count:,}" for label, count in labels.most_common(most))
    return f"{len(labels):,} labels: {listed}{', ..' if len(labels) > most else ''}"


def shorten_text(text: object, width: int = 40) -> str:
    """Return text on one line, shortened at the end."""
    line = re.sub(r"\s+", " ", str(text)).strip()
    return line if len(line) <= width else line[: width - 2] + ".."


def rank_example(text: str) -> tuple[bool, int]:
    """Return a sort key that prefers examples without quotes and with about 20 characters, for use in a command."""
    return any(sign in text for sign in "'\"`$\\!"), abs(len(text) - 20)


def describe_format(table: SniffedTable) -> str:
    """Describe the format of a table, such as `csv, gb18030, with a header, 20,000 rows`."""
    layout = table.layout
    format = layout.format_of(table.path)
    words = ["lines `label text`" if format == "label text" else format]
    if layout.delimiter:
        words[0] += f" with {'tabs' if layout.delimiter == chr(9) else repr(layout.delimiter)}"
    if format != "parquet":
        words.append(layout.encoding)
    if not table.keyed and format != "label text":
        words.append("with a header" if layout.header else "no header")
    rows = f"{len(table.rows) + len(table.bad):,} rows"
    words.append(rows if table.whole else f"{rows} examined (the file has more)")
    return ", ".join(words)


def relocate(finding: Finding, folder: Path) -> Finding:
    """Return a copy with paths relative to the folder of the config."""

    def move(value: Any) -> Any:
        return [move(path) for path in value] if isinstance(value, list) else relative_path(Path(value), folder)

    splits = {split: {**own, "path": move(own["path"])} for split, own in finding.splits.items()}
    labels = finding.shared.get("labels")
    files = {"labels": move(labels)} if isinstance(labels, str) else {}  # a file of labels
    return replace(finding, splits=splits, shared={**finding.shared, **files})


def relative_path(path: Path, folder: Path) -> str:
    """Return a path relative to the folder of the config; an absolute path stays as it is."""
    if path.is_absolute():
        return path.as_posix()
    try:
        return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return path.resolve().as_posix()


def note_size(rows: int, unit: str = "rows") -> list[str]:
    """Return a note if the training data is very small."""
    return [f"only {rows:,} {unit}: enough for a trial run, too few to train a model"] if rows < FEWEST else []


def note_balance(labels: Counter[str]) -> list[str]:
    """Return notes about imbalanced labels and labels that occur only once."""
    (first, most), *_, (last, fewest) = labels.most_common()
    total = sum(labels.values())
    notes = []
    if most > UNBALANCED * fewest:
        text = f"imbalanced labels: {shorten(first)} in {most / total:.0%} of rows, {shorten(last)} in only {fewest}"
        notes.append(f"{text}; check macro_f1 in addition to accuracy")
    single = [label for label, count in labels.items() if count == 1]
    if single:
        notes.append(f"labels that occur only once: {in_short(single, 5)}")
    return notes
