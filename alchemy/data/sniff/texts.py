"""Detect the columns of labeled text or text pairs, and note problems in the data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.data.files import read_lines
from alchemy.data.messages import in_short
from alchemy.data.sniff import names
from alchemy.data.sniff.columns import (
    ColumnStats,
    check_label,
    count_labels,
    describe_columns,
    find_label,
    find_texts,
    get_column,
)
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    describe_format,
    format_labels,
    format_lengths,
    layout_keys,
    measure_lengths,
    merge_keys,
    note_balance,
    note_size,
    rank_example,
    shorten_text,
    tokenizer_keys,
)
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError

LONG = 512  # longer text is truncated to this many tokens
TAG = re.compile(r"O|[BIESMLU]-.+")
LISTED = 50  # maximum number of labels that a config lists


class LabeledTexts:
    """The text and label columns of a table, and its complete rows."""

    def __init__(self, table: SniffedTable, texts: Sequence[ColumnStats], label: ColumnStats | None) -> None:
        self.table, self.texts, self.label = table, list(texts), label
        places = [column.place for column in texts]
        whole = [row for row in table.rows if all(_is_text(row[place]) for place in places)]
        self.without_text = len(table.rows) - len(whole)
        kept = [row for row in whole if label is None or not _is_empty(row[label.place])]
        self.without_label = len(whole) - len(kept)
        self.rows = [tuple(row[place] for place in places) for row in kept]
        self.labels = [] if label is None else [row[label.place] for row in kept]

    def keys(self) -> dict[str, Any]:
        """Return the config keys for this table."""
        columns = dict(zip(("text", "pair"), self.texts))
        if self.label is not None:
            columns["label"] = self.label
        keys = layout_keys(self.table)
        named = {name: self.table.key(column.place) for name, column in columns.items()}
        first = self.table.key(self.texts[0].place)
        if self.table.layout.header and isinstance(first, int) and not self.table.keyed:
            keys["header"] = True
        if self.table.bad or self.without_text or self.without_label:
            keys["bad"] = "skip"
        return named | keys


def sniff_texts(paths: Mapping[str, list[Path]], asked: Hints, *, pairs: bool = False) -> Finding:
    """Detect the config keys for classifying texts or text pairs."""
    train = _open(sniff_table(paths["train"][0], asked.encoding), asked, pairs)
    if train.label is None:
        raise _missing_label(train)
    if not train.rows:
        raise AlchemyError(f"{train.table.path} has no row with text and a label")
    labels = count_labels(train.labels)
    rows = len(train.rows)
    kind = check_label(train.table.path, train.label, labels, rows, explicit=bool(asked.label))
    kind = _check_values(train, kind)
    if "O" in labels and not asked.label and all(map(TAG.fullmatch, labels)):
        hint = "for --kind ner, write one token, a tab and its tag per line, with an empty line between sentences"
        raise AlchemyError(f"{train.table.path}: the labels {in_short(labels, 5)} are token tags", hint=hint)
    others = {split: _open_split(train, files[0], asked) for split, files in paths.items() if split != "train"}
    unlabeled = [split for split, texts in others.items() if texts.label is None]
    found = {"train": train} | {split: texts for split, texts in others.items() if split not in unlabeled}
    keys = {split: texts.keys() for split, texts in found.items()}
    if kind != "single":
        keys = {split: own | {"kind": kind} for split, own in keys.items()}
    finding = Finding(_task_keys(train, kind, pairs), dict(keys["train"]), merge_keys(paths, keys))
    finding.sizes = {split: len(texts.rows) for split, texts in found.items()}
    finding.large = {split for split, texts in found.items() if not texts.table.whole}
    example = min(train.rows[:100], key=lambda row: rank_example(" ".join(row)) if pairs else rank_example(row[0]))
    finding.question, finding.other = shorten_text(example[0], 80), shorten_text(example[-1], 80)
    finding.shown = _describe(train, labels, kind)
    finding.notes += note_size(rows)
    if kind == "single":
        finding.shared |= _find_label_names(paths["train"][0].parent, labels)
        finding.notes += [*note_balance(labels), *_add_labels(finding.task, found, labels)]
    elif kind == "regression":
        finding.notes.append(
            f"{train.label.name} is predicted as a number; for classification, write labels as strings"
        )
    if any("<e1>" in text for row in train.rows[:100] for text in row):
        finding.notes.append("the texts contain <e1>..</e1> markers; to predict relations, see alchemy.tasks.Relation")
    for split in unlabeled:
        finding.notes.append(f"{paths[split][0]} has no labels and is not used; use alchemy predict --file to label it")
    for split, texts in found.items():
        finding.notes += [*_note_rows(texts), *(_note_shared(split, texts, train) if split != "train" else [])]
    return finding


def sniff_pairs(paths: Mapping[str, list[Path]], asked: Hints) -> Finding:
    """Detect the config keys for classifying text pairs."""
    return sniff_texts(paths, asked, pairs=True)


def _open(table: SniffedTable, asked: Hints, pairs: bool) -> LabeledTexts:
    """Find the columns of the training data: use the columns set by the user and guess the others."""
    columns, rows = describe_columns(table), len(table.rows)
    wanted = {"text": "first", "pair": "second"} if pairs else {"text": "text"}
    given = {"text": asked.text, "pair": asked.pair}
    chosen = {role: get_column(columns, given[role], f"--{role}", table.path) for role in wanted if given[role]}
    label = get_column(columns, asked.label, "--label", table.path) if asked.label else None
    named = [*chosen.values(), *([label] if label else [])]
    if twice := [column.name for column, count in Counter(named).items() if count > 1]:
        raise AlchemyError(f"column {twice[0]!r} is used twice", hint="text and label must be different columns")
    missing = [role for role in wanted if role not in chosen]
    free = [column for column in columns if column not in chosen.values() and column != label]
    if label is None:  # a label column with a known name is not text, even if its values are long
        likely = find_label(columns, list(chosen.values()), rows)
        free = [column for column in free if column != likely or not names.rank(column.name, "label")]
    chosen |= dict(zip(missing, find_texts(free, rows, [wanted[role] for role in missing])))
    if len(chosen) < len(wanted):
        need = "two text columns" if pairs else "a text column"
        options = "them with --text and --pair" if pairs else "it with --text"
        hint = f"available columns: {in_short(table.names)}; set {options}"
        raise AlchemyError(f"{table.path} does not have {need}", hint=hint)
    texts = [chosen[role] for role in wanted]
    return LabeledTexts(table, texts, label or find_label(columns, texts, rows))


def _missing_label(train: LabeledTexts) -> AlchemyError:
    texts = [column.name for column in train.texts]
    others = in_short(name for name in train.table.names if name not in texts)
    hint = f"besides {in_short(texts)}, it has {others}; set the label column with --label"
    if not others:
        hint = f"{in_short(texts)} is its only column; add a label column"
    elif sum(column.is_text for column in describe_columns(train.table)) > 1:
        hint += "; for translation, use --kind translation"
    return AlchemyError(f"{train.table.path} has no label column", hint=hint)


def _check_values(train: LabeledTexts, kind: str) -> str:
    """Return "regression" if a JSON label is a float; raise for unsupported values such as true and false."""
    if kind == "single" and any(isinstance(cell, float) for cell in train.labels):
        return "regression"
    odd = next(
        (cell for cell in train.labels if isinstance(cell, bool) or not isinstance(cell, str | int | float | list)),
        None,
    )
    if odd is not None and train.label is not None:
        text = f"{train.table.path}: the label column {train.label.name!r} has unsupported values such as {odd!r}"
        raise AlchemyError(text, hint="write them as strings or integers, or choose another column with --label")
    return kind


def _open_split(train: LabeledTexts, file: Path, asked: Hints) -> LabeledTexts:
    """Open another split, whose columns must have the same names or positions as in the training data."""
    table = sniff_table(file, asked.encoding)
    columns = describe_columns(table)
    texts = [_match_column(train.table, column, table, columns) for column in train.texts]
    missing = [column.name for column, found in zip(train.texts, texts, strict=True) if found is None]
    if missing:
        hint = f"available columns: {in_short(table.names)}; all splits must have the same column names"
        raise AlchemyError(f"{file} has no column {missing[0]!r}, which {train.table.path} has", hint=hint)
    label = _match_column(train.table, train.label, table, columns) if train.label else None
    return LabeledTexts(table, [column for column in texts if column], label)


def _match_column(
    train: SniffedTable, column: ColumnStats, table: SniffedTable, columns: Sequence[ColumnStats]
) -> ColumnStats | None:
    key = train.key(column.place)
    if isinstance(key, str) and isinstance(table.key(0), str):
        return next((other for other in columns if other.name == key), None)
    return columns[column.place] if column.place < len(columns) else None


def _task_keys(train: LabeledTexts, kind: str, pairs: bool) -> dict[str, Any]:
    texts = [text for row in train.rows for text in row]
    keys: dict[str, Any] = {"type": "Classification", **({"kind": kind} if kind != "single" else {})}
    keys |= {"pair": True} if pairs else {}
    keys |= tokenizer_keys(texts)
    if measure_lengths(texts, keys["tokenizer"] == "Characters")[2] > LONG:
        keys |= {"max_length": LONG, "long": "longest_first" if pairs else "only_first"}
    return keys


def _find_label_names(folder: Path, labels: Counter[str]) -> dict[str, Any]:
    """Return the config keys for a file of label names next to the data, if the labels are line indices."""
    numbers = [str(number) for number in range(len(labels))]
    for stem in ("class", "classes", "label", "labels"):
        file = folder / f"{stem}.txt"
        if set(numbers) == labels.keys() and file.is_file():
            named = [line for _, line in read_lines(file) if line.strip()]
            if len(set(named)) == len(named) == len(numbers):
                return {"labels": file.as_posix(), "label_by": "index"}
    return {}


def _add_labels(task: dict[str, Any], found: Mapping[str, LabeledTexts], labels: Counter[str]) -> Iterator[str]:
    """Add labels that are missing from the training data to the config, if there are only a few, and yield notes."""
    known = sorted(labels)
    for split, texts in found.items():
        unseen = sorted(count_labels(texts.labels).keys() - set(known))
        if not unseen:
            continue
        text = f"{split} has labels that are missing from the training data: {in_short(unseen, 5)}"
        if len(known) + len(unseen) <= LISTED:
            yield f"{text}; `labels` in the config lists them, but learning them requires training rows"
            task["labels"] = known = [*known, *unseen]
        else:
            yield f"{text}; the run would fail: add training rows for them, or remove those rows from {split}"


def _describe(train: LabeledTexts, labels: Counter[str], kind: str) -> list[str]:
    table = train.table
    characters = tokenizer_keys([text for row in train.rows for text in row])["tokenizer"] == "Characters"
    rows = []
    for role, column in zip(("text", "pair"), train.texts):
        texts = [row[train.texts.index(column)] for row in train.rows]
        summary = format_lengths(measure_lengths(texts, characters), characters)
        rows.append((column.name, role, f"{summary}; {shorten_text(texts[0])!r}"))
    if train.label is not None:
        numbers = [float(cell) for cell in train.labels] if kind == "regression" else []
        summary = f"numbers from {min(numbers):g} to {max(numbers):g}" if numbers else format_labels(labels)
        rows.append((train.label.name, "label", summary))
    used = [row[0] for row in rows]
    rest = [name for name in table.names if name.strip() and name not in used]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{table.path}: {describe_format(table)}"]
    lines += [f"  {name:<{width}}  {role:<5}  {summary}" for name, role, summary in rows]
    return lines + ([f"  not used: {in_short(rest, 8)}"] if rest else [])


def _note_rows(texts: LabeledTexts) -> list[str]:
    """Return notes about skipped rows and duplicate texts."""
    notes, path = [], texts.table.path
    if texts.table.bad:
        line, text = texts.table.bad[0]
        notes.append(f"{path}: {len(texts.table.bad):,} bad rows are skipped, the first at line {line}: {text}")
    for count, what in ((texts.without_text, "text"), (texts.without_label, "a label")):
        if count:
            notes.append(f"{path}: {count:,} rows without {what} are skipped")
    seen: dict[tuple[str, ...], set[str]] = {}
    for row, label in zip(texts.rows, texts.labels):
        seen.setdefault(row, set()).add(str(label))
    if len(seen) < len(texts.rows):
        conflicts = sum(len(labels) > 1 for labels in seen.values())
        ending = f", {conflicts:,} of them with different labels" if conflicts else ""
        notes.append(f"{path}: {len(texts.rows) - len(seen):,} rows repeat the text of another row{ending}")
    return notes


def _note_shared(split: str, texts: LabeledTexts, train: LabeledTexts) -> list[str]:
    """Return a note if texts of a split also occur in the training data, which biases the evaluation."""
    shared = len(set(texts.rows) & set(train.rows))
    return [f"{shared:,} of {len(texts.rows):,} texts in {split} are also in the training data"] if shared else []


def _is_text(cell: object) -> bool:
    return isinstance(cell, str) and not is_blank(cell)


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
