"""Detect files of `token tag` lines: their columns, tagging scheme and types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from alchemy.data.files import read_lines
from alchemy.data.messages import in_short
from alchemy.data.sniff.encoding import detect_encoding
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    format_labels,
    format_lengths,
    measure_lengths,
    merge_keys,
    note_size,
    rank_example,
    shorten_text,
    uses_characters,
)
from alchemy.data.tables import BadRow
from alchemy.data.tag_schemes import Scheme
from alchemy.errors import AlchemyError

MOST_LINES = 200_000  # number of lines to examine
MOST_TAGS = 300
LETTERS = {"BIO": "BI", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}  # in the order they are tried


@dataclass(frozen=True)
class Tagged:
    """The tagged sentences of a file."""

    path: Path
    encoding: str
    delimiter: str
    sentences: list[tuple[list[str], list[str]]]
    uneven: int  # number of sentences whose lines differ in the number of columns
    whole: bool

    @property
    def tags(self) -> Counter[str]:
        return Counter(tag for _, tags in self.sentences for tag in tags)


def sniff_tags(paths: Mapping[str, list[Path]], asked: Hints) -> Finding:
    """Detect the config keys for tagging words or characters."""
    found = {split: _read(files[0], asked.encoding) for split, files in paths.items()}
    train = found["train"]
    scheme = _find_scheme(train)
    keys = {split: _config_keys(tagged, scheme) for split, tagged in found.items()}
    texts = [" ".join(tokens) for tokens, _ in train.sentences]
    characters = uses_characters(texts) and _are_short(train)
    task: dict[str, Any] = {"type": "Tagging", "scheme": scheme, "tokenizer": "Characters" if characters else "Words"}
    finding = Finding(task, dict(keys["train"]), merge_keys(paths, keys))
    finding.sizes = {split: len(tagged.sentences) for split, tagged in found.items()}
    finding.unit = "sentences"
    finding.large = {split for split, tagged in found.items() if not tagged.whole}
    examples = [("" if characters else " ").join(tokens) for tokens, _ in train.sentences[:100]]
    finding.question = shorten_text(min(examples, key=rank_example), 40)
    spans = Counter(str(span[2]) for _, tags in train.sentences for span in Scheme(scheme, begins=True).spans(tags))
    lengths = format_lengths(measure_lengths(texts, False), False).replace("words", "tokens", 1)
    rows = f"{len(train.sentences):,} sentences" + ("" if train.whole else " examined (the file has more)")
    pairs = " ".join(f"{token}/{tag}" for token, tag in islice(zip(*train.sentences[0]), 8))
    finding.shown = [
        f"{train.path}: one token and its tag per line, {train.encoding}, {rows}",
        f"  tokens  {lengths}",
        f"  tags    {scheme}, {format_labels(spans).replace('labels', 'span types', 1)}",
        f"  {pairs} ..",
    ]
    finding.notes += note_size(len(train.sentences), "sentences")
    for split, tagged in found.items():
        finding.notes += _note_problems(split, tagged, scheme, spans)
    return finding


def looks_tagged(path: Path, encoding: str = "") -> bool:
    """Return whether the last cells of the first lines are tags of a known scheme."""
    try:
        _find_scheme(_read(path, encoding, 5_000))
    except AlchemyError:
        return False
    return True


def _read(path: Path, encoding: str, most: int = MOST_LINES) -> Tagged:
    encoding = encoding or detect_encoding(path)
    lines = read_lines(path, encoding=encoding)
    listed = [line for _, line in islice(lines, most)]
    delimiter = "\t" if _fits(listed, "\t") else "" if _fits(listed, None) else "?"
    if delimiter == "?":
        hint = "expected one token, a space or tab, and its tag per line, with an empty line between sentences"
        first = next((line for line in listed if line.strip()), "")
        text = f"{path} is empty" if not first else f"{path} is not a tagged file: its first line is {first[:60]!r}"
        raise AlchemyError(text, hint=hint)
    sentences, uneven = [], 0
    for rows in _iter_sentences(listed, delimiter or None):
        width = len(rows[0])
        if width > 1 and all(len(row) == width for row in rows):
            sentences.append(([row[0] for row in rows], [row[-1] for row in rows]))
        else:
            uneven += 1
    return Tagged(path, encoding, delimiter, sentences, uneven, next(lines, None) is None)


def _fits(lines: Sequence[str], delimiter: str | None) -> bool:
    """Return whether nearly all lines have the same number of columns, two or more."""
    widths = Counter(len(line.split(delimiter)) for line in islice((line for line in lines if line.strip()), 5_000))
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return width > 1 and count >= 0.98 * sum(widths.values())


def _iter_sentences(lines: Sequence[str], delimiter: str | None) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if rows:
                yield rows
            rows = []
        else:
            rows.append([cell.strip() or cell for cell in line.split(delimiter)])


def _find_scheme(tagged: Tagged) -> str:
    """Return the scheme whose letters match the tags; in a tie, the scheme with the fewest violations."""
    tags = tagged.tags
    if len(tags) > MOST_TAGS:
        text = f"{tagged.path}: the last column has {len(tags):,} different values, which is too many for tags"
        raise AlchemyError(text, hint="the first cell of a line must be the token, the last cell its tag")
    letters = {tag.partition("-")[0] for tag in tags if "-" in tag}
    strange = [tag for tag in tags if tag != "O" and "-" not in tag]
    fits = [scheme for scheme, known in LETTERS.items() if letters <= set(known)]
    if strange or not letters or not fits:
        listed = in_short([tag for tag, _ in tags.most_common(8)])
        hint = "use BIO, BIOES, BMES or BILOU tags, e.g. B-PER, I-PER, O"
        raise AlchemyError(f"{tagged.path}: the tags {listed} do not belong to a known scheme", hint=hint)
    if fits[0] == "BIO":
        fits = ["BIO", "IOB1"]
        if "B" not in letters:
            return "IOB1"
        return "IOB1" if _count_violations(tagged, "BIO") * 10 > len(tagged.sentences) else "BIO"
    return min(fits, key=lambda scheme: _count_violations(tagged, scheme))


def _count_violations(tagged: Tagged, scheme: str) -> int:
    rules = Scheme(scheme)
    try:
        return sum(bool(rules.violations(tags)) for _, tags in tagged.sentences)
    except BadRow:  # another split may have a tag that is not in the scheme
        return len(tagged.sentences)


def _config_keys(tagged: Tagged, scheme: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"scheme": scheme}
    keys |= {"delimiter": tagged.delimiter} if tagged.delimiter else {}
    keys |= {"encoding": tagged.encoding} if tagged.encoding != "utf-8" else {}
    keys |= {"violations": "begin"} if _count_violations(tagged, scheme) else {}
    return keys | ({"bad": "skip"} if tagged.uneven else {})


def _are_short(tagged: Tagged) -> bool:
    lengths = [len(token) for tokens, _ in tagged.sentences[:1000] for token in tokens]
    return sum(lengths) <= 1.5 * len(lengths)


def _note_problems(split: str, tagged: Tagged, scheme: str, spans: Counter[str]) -> list[str]:
    notes = []
    if broken := _count_violations(tagged, scheme):
        notes.append(f"{tagged.path}: {broken:,} sentences violate {scheme}; each invalid tag begins a new span")
    if tagged.uneven:
        notes.append(f"{tagged.path}: {tagged.uneven:,} sentences with inconsistent columns are skipped")
    own = {tag.partition("-")[2] for tag in tagged.tags if tag != "O"}
    if unseen := sorted(own - spans.keys()):
        text = f"{split} has types that are missing from the training data: {in_short(unseen)}; the run would fail"
        notes.append(f"{text}: add training sentences with these types, or list all tags as `labels` in [task]")
    return notes
