"""Files of lines `token tag`: columns, scheme, types."""

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
    measure_lengths,
    merge_keys,
    note_size,
    rank_example,
    shorten_text,
    show_lengths,
    tell_labels,
    uses_characters,
)
from alchemy.data.tables import BadRow
from alchemy.data.tag_schemes import Scheme
from alchemy.errors import AlchemyError

MOST_LINES = 200_000  # that are looked at
MOST_TAGS = 300
LETTERS = {"BIO": "BI", "BIOES": "BIES", "BMES": "BMES", "BILOU": "BILU"}  # in the order in which they are tried


@dataclass(frozen=True)
class Tagged:
    """The sentences of a file: tokens and tags."""

    path: Path
    encoding: str
    delimiter: str
    sentences: list[tuple[list[str], list[str]]]
    uneven: int  # sentences with a line that has another number of columns
    whole: bool

    @property
    def tags(self) -> Counter[str]:
        return Counter(tag for _, tags in self.sentences for tag in tags)


def sniff_tags(paths: Mapping[str, list[Path]], asked: Hints) -> Finding:
    """What the files of each split are, for tags of words or characters."""
    found = {split: _read(files[0], asked.encoding) for split, files in paths.items()}
    train = found["train"]
    scheme = _find_scheme(train)
    keys = {split: _keys(tagged, scheme) for split, tagged in found.items()}
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
    lengths = show_lengths(measure_lengths(texts, False), False).replace("words", "tokens", 1)
    rows = f"{len(train.sentences):,} sentences" + ("" if train.whole else " were looked at, of more")
    pairs = " ".join(f"{token}/{tag}" for token, tag in islice(zip(*train.sentences[0]), 8))
    finding.shown = [
        f"{train.path}: a token and its tag on each line, {train.encoding}, {rows}",
        f"  tokens  {lengths}",
        f"  tags    {scheme}, {tell_labels(spans).replace('labels', 'types of spans', 1)}",
        f"  {pairs} ..",
    ]
    finding.notes += note_size(len(train.sentences), "sentences")
    for split, tagged in found.items():
        finding.notes += _notes(split, tagged, scheme, spans)
    return finding


def looks_tagged(path: Path, encoding: str = "") -> bool:
    """Whether the last cells of the first lines are tags of a known scheme."""
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
        hint = "expected lines of a token, a blank or a tab, and its tag, with an empty line between sentences"
        shown = next((line for line in listed if line.strip()), "")
        text = f"{path} is empty" if not shown else f"{path} is not a file of tags: its first line is {shown[:60]!r}"
        raise AlchemyError(text, hint=hint)
    sentences, uneven = [], 0
    for rows in _sentences(listed, delimiter or None):
        width = len(rows[0])
        if width > 1 and all(len(row) == width for row in rows):
            sentences.append(([row[0] for row in rows], [row[-1] for row in rows]))
        else:
            uneven += 1
    return Tagged(path, encoding, delimiter, sentences, uneven, next(lines, None) is None)


def _fits(lines: Sequence[str], delimiter: str | None) -> bool:
    """Whether nearly all lines have the same number of columns, two or more."""
    widths = Counter(len(line.split(delimiter)) for line in islice((line for line in lines if line.strip()), 5_000))
    width, count = widths.most_common(1)[0] if widths else (0, 0)
    return width > 1 and count >= 0.98 * sum(widths.values())


def _sentences(lines: Sequence[str], delimiter: str | None) -> Iterator[list[list[str]]]:
    rows: list[list[str]] = []
    for line in [*lines, ""]:
        if not line.strip() or line.startswith("-DOCSTART-"):
            if rows:
                yield rows
            rows = []
        else:
            rows.append([cell.strip() or cell for cell in line.split(delimiter)])


def _find_scheme(tagged: Tagged) -> str:
    """The scheme whose letters the tags have; between those that fit alike, the one with the fewest violations."""
    tags = tagged.tags
    if len(tags) > MOST_TAGS:
        text = f"{tagged.path}: the last column has {len(tags):,} different values, too many for tags"
        raise AlchemyError(text, hint="the tag is the last cell of a line, the token the first")
    letters = {tag.partition("-")[0] for tag in tags if "-" in tag}
    strange = [tag for tag in tags if tag != "O" and "-" not in tag]
    fits = [scheme for scheme, known in LETTERS.items() if letters <= set(known)]
    if strange or not letters or not fits:
        listed = in_short([tag for tag, _ in tags.most_common(8)])
        hint = "spans are tagged as BIO, BIOES, BMES or BILOU: B-PER, I-PER, O"
        raise AlchemyError(f"{tagged.path}: the tags {listed} are of no known scheme", hint=hint)
    if fits[0] == "BIO":
        fits = ["BIO", "IOB1"]
        if "B" not in letters:
            return "IOB1"
        return "IOB1" if _violations(tagged, "BIO") * 10 > len(tagged.sentences) else "BIO"
    return min(fits, key=lambda scheme: _violations(tagged, scheme))


def _violations(tagged: Tagged, scheme: str) -> int:
    rules = Scheme(scheme)
    try:
        return sum(bool(rules.violations(tags)) for _, tags in tagged.sentences)
    except BadRow:  # a tag of another split that the scheme does not have
        return len(tagged.sentences)


def _keys(tagged: Tagged, scheme: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"scheme": scheme}
    keys |= {"delimiter": tagged.delimiter} if tagged.delimiter else {}
    keys |= {"encoding": tagged.encoding} if tagged.encoding != "utf-8" else {}
    keys |= {"violations": "begin"} if _violations(tagged, scheme) else {}
    return keys | ({"bad": "skip"} if tagged.uneven else {})


def _are_short(tagged: Tagged) -> bool:
    lengths = [len(token) for tokens, _ in tagged.sentences[:1000] for token in tokens]
    return sum(lengths) <= 1.5 * len(lengths)


def _notes(split: str, tagged: Tagged, scheme: str, spans: Counter[str]) -> list[str]:
    notes = []
    if broken := _violations(tagged, scheme):
        notes.append(f"{tagged.path}: {broken:,} sentences break the rules of {scheme}; such tags begin a span")
    if tagged.uneven:
        notes.append(f"{tagged.path}: {tagged.uneven:,} sentences with uneven lines are skipped")
    own = {tag.partition("-")[2] for tag in tagged.tags if tag != "O"}
    if unseen := sorted(own - spans.keys()):
        text = f"{split} has types that the training data lacks: {in_short(unseen)}; the run refuses them"
        notes.append(f"{text}: add training sentences that have them, or list all tags as `labels` in [task]")
    return notes
