"""Detects the columns of tables of labeled texts or pairs of texts, and notes what is odd about them."""

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
    named_column,
)
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    layout_keys,
    measure_lengths,
    merge_keys,
    note_balance,
    note_size,
    rank_example,
    shorten_text,
    show_lengths,
    tell_format,
    tell_labels,
    tokenizer_keys,
)
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError

LONG = 512  # tokens from which on a text is cut, as most models say little more about the rest
TAG = re.compile(r"O|[BIESMLU]-.+")
LISTED = 50  # labels, at most, that a config lists


class LabeledTexts:
    """The columns of a table that are texts and a label, and its rows that have them all."""

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
        """The keys of a config for this table."""
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
    """What the files of each split are, for a classification of texts or of pairs."""
    train = _open(sniff_table(paths["train"][0], asked.encoding), asked, pairs)
    if train.label is None:
        raise _no_label(train)
    if not train.rows:
        raise AlchemyError(f"{train.table.path} has no row with a text and a label")
    labels = count_labels(train.labels)
    rows = len(train.rows)
    kind = check_label(train.table.path, train.label, labels, rows, told=bool(asked.label))
    kind = _check_values(train, kind)
    if "O" in labels and not asked.label and all(map(TAG.fullmatch, labels)):
        hint = "write a token, a tab and its tag on each line, no header, an empty line between sentences: --kind ner"
        raise AlchemyError(f"{train.table.path}: the labels {in_short(labels, 5)} are tags of tokens", hint=hint)
    others = {split: _follow(train, files[0], asked) for split, files in paths.items() if split != "train"}
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
    finding.shown = _show(train, labels, kind)
    finding.notes += note_size(rows)
    if kind == "single":
        finding.shared |= _label_names(paths["train"][0].parent, labels)
        finding.notes += [*note_balance(labels), *_add_labels(finding.task, found, labels)]
    elif kind == "regression":
        finding.notes.append(f"{train.label.name} is predicted as a number: write the labels as texts for classes")
    if any("<e1>" in text for row in train.rows[:100] for text in row):
        finding.notes.append("the texts have marks <e1>..</e1>: for relations between them see alchemy.tasks.Relation")
    for split in unlabeled:
        finding.notes.append(f"{paths[split][0]} has no labels and is left out: alchemy predict --file answers it")
    for split, texts in found.items():
        finding.notes += [*_note_rows(texts), *(_note_shared(split, texts, train) if split != "train" else [])]
    return finding


def sniff_pairs(paths: Mapping[str, list[Path]], asked: Hints) -> Finding:
    """The same for pairs of texts."""
    return sniff_texts(paths, asked, pairs=True)


def _open(table: SniffedTable, asked: Hints, pairs: bool) -> LabeledTexts:
    """The columns of the training data: those that the user names, and guesses for the others."""
    columns, rows = describe_columns(table), len(table.rows)
    wanted = {"text": "first", "pair": "second"} if pairs else {"text": "text"}
    told = {"text": asked.text, "pair": asked.pair}
    chosen = {role: named_column(columns, told[role], f"--{role}", table.path) for role in wanted if told[role]}
    label = named_column(columns, asked.label, "--label", table.path) if asked.label else None
    named = [*chosen.values(), *([label] if label else [])]
    if twice := [column.name for column, count in Counter(named).items() if count > 1]:
        raise AlchemyError(f"column {twice[0]!r} is named twice", hint="text and label stand in different columns")
    missing = [role for role in wanted if role not in chosen]
    free = [column for column in columns if column not in chosen.values() and column != label]
    if label is None:  # a column of labels with a known name is no text, however long its words are
        likely = find_label(columns, list(chosen.values()), rows)
        free = [column for column in free if column != likely or not names.rank(column.name, "label")]
    chosen |= dict(zip(missing, find_texts(free, rows, [wanted[role] for role in missing])))
    if len(chosen) < len(wanted):
        need = "two columns of texts" if pairs else "a column of texts"
        hint = f"it has {in_short(table.names)}: name {'them with --text and --pair' if pairs else 'it with --text'}"
        raise AlchemyError(f"{table.path} does not have {need}", hint=hint)
    texts = [chosen[role] for role in wanted]
    return LabeledTexts(table, texts, label or find_label(columns, texts, rows))


def _no_label(train: LabeledTexts) -> AlchemyError:
    texts = [column.name for column in train.texts]
    others = in_short(name for name in train.table.names if name not in texts)
    hint = f"beside {in_short(texts)} it has {others}; name it with --label"
    if not others:
        hint = f"{in_short(texts)} is its only column; add a second one with the label of each row"
    elif sum(column.is_text for column in describe_columns(train.table)) > 1:
        hint += "; for translations say --kind translation"
    return AlchemyError(f"{train.table.path} has no column of labels", hint=hint)


def _check_values(train: LabeledTexts, kind: str) -> str:
    """Labels of JSON that are numbers with a point are predicted as numbers; true and false are not read."""
    if kind == "single" and any(isinstance(cell, float) for cell in train.labels):
        return "regression"
    odd = next(
        (cell for cell in train.labels if isinstance(cell, bool) or not isinstance(cell, str | int | float | list)),
        None,
    )
    if odd is not None and train.label is not None:
        text = f"{train.table.path}: the labels of {train.label.name!r} are values such as {odd!r}"
        raise AlchemyError(text, hint="write them as texts or whole numbers, or name another column with --label")
    return kind


def _follow(train: LabeledTexts, file: Path, asked: Hints) -> LabeledTexts:
    """Another split, whose columns are called, or stand, as those of the training data."""
    table = sniff_table(file, asked.encoding)
    columns = describe_columns(table)
    texts = [_same(train.table, column, table, columns) for column in train.texts]
    missing = [column.name for column, found in zip(train.texts, texts, strict=True) if found is None]
    if missing:
        hint = f"it has {in_short(table.names)}; the columns of all splits have the same names"
        raise AlchemyError(f"{file} has no column {missing[0]!r}, which {train.table.path} has", hint=hint)
    label = _same(train.table, train.label, table, columns) if train.label else None
    return LabeledTexts(table, [column for column in texts if column], label)


def _same(
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


def _label_names(folder: Path, labels: Counter[str]) -> dict[str, Any]:
    """The keys for a file beside the data that names the labels, where the data have their numbers."""
    numbers = [str(number) for number in range(len(labels))]
    for stem in ("class", "classes", "label", "labels"):
        file = folder / f"{stem}.txt"
        if set(numbers) == labels.keys() and file.is_file():
            named = [line for _, line in read_lines(file) if line.strip()]
            if len(set(named)) == len(named) == len(numbers):
                return {"labels": file.as_posix(), "label_by": "index"}
    return {}


def _add_labels(task: dict[str, Any], found: Mapping[str, LabeledTexts], labels: Counter[str]) -> Iterator[str]:
    """Labels that the training data lacks: a config lists them if they are few, else the run would refuse them."""
    known = sorted(labels)
    for split, texts in found.items():
        unseen = sorted(count_labels(texts.labels).keys() - set(known))
        if not unseen:
            continue
        text = f"{split} has labels that the training data lacks: {in_short(unseen, 5)}"
        if len(known) + len(unseen) <= LISTED:
            yield f"{text}; `labels` in the config lists them, but they cannot be learnt: add training rows for them"
            task["labels"] = known = [*known, *unseen]
        else:
            yield f"{text}; the run refuses them: add training rows for them, or take those rows out of {split}"


def _show(train: LabeledTexts, labels: Counter[str], kind: str) -> list[str]:
    table = train.table
    characters = tokenizer_keys([text for row in train.rows for text in row])["tokenizer"] == "Characters"
    rows = []
    for role, column in zip(("text", "pair"), train.texts):
        texts = [row[train.texts.index(column)] for row in train.rows]
        told = show_lengths(measure_lengths(texts, characters), characters)
        rows.append((column.name, role, f"{told}; {shorten_text(texts[0])!r}"))
    if train.label is not None:
        numbers = [float(cell) for cell in train.labels] if kind == "regression" else []
        told = f"numbers from {min(numbers):g} to {max(numbers):g}" if numbers else tell_labels(labels)
        rows.append((train.label.name, "label", told))
    used = [row[0] for row in rows]
    rest = [name for name in table.names if name.strip() and name not in used]
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{table.path}: {tell_format(table)}"]
    lines += [f"  {name:<{width}}  {role:<5}  {told}" for name, role, told in rows]
    return lines + ([f"  not used: {in_short(rest, 8)}"] if rest else [])


def _note_rows(texts: LabeledTexts) -> list[str]:
    """Rows that are left out, and texts that occur twice."""
    notes, path = [], texts.table.path
    if texts.table.bad:
        line, text = texts.table.bad[0]
        notes.append(f"{path}: {len(texts.table.bad):,} bad rows are skipped, the first at line {line}: {text}")
    for count, what in ((texts.without_text, "a text"), (texts.without_label, "a label")):
        if count:
            notes.append(f"{path}: {count:,} rows without {what} are skipped")
    seen: dict[tuple[str, ...], set[str]] = {}
    for row, label in zip(texts.rows, texts.labels):
        seen.setdefault(row, set()).add(str(label))
    if len(seen) < len(texts.rows):
        torn = sum(len(labels) > 1 for labels in seen.values())
        apart = f", {torn:,} of them with different labels" if torn else ""
        notes.append(f"{path}: {len(texts.rows) - len(seen):,} rows repeat the text of another{apart}")
    return notes


def _note_shared(split: str, texts: LabeledTexts, train: LabeledTexts) -> list[str]:
    """Texts of the training data tell nothing about how well others are answered."""
    shared = len(set(texts.rows) & set(train.rows))
    return [f"{shared:,} of {len(texts.rows):,} texts of {split} are in the training data, too"] if shared else []


def _is_text(cell: object) -> bool:
    return isinstance(cell, str) and not is_blank(cell)


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
