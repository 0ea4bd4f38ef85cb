"""Deterministic sample datasets for projects created without data."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

LABELS = ("red", "green", "blue")
SIZES = {"train": 900, "dev": 150, "test": 150}
Row = Sequence[str]


def points(split: str, count: int) -> Iterator[str]:
    """Yield a deterministic sequence of points on three interleaved spiral arms."""
    numbers = random.Random(split)
    for _ in range(count):
        arm, radius = numbers.randrange(len(LABELS)), math.sqrt(numbers.uniform(0.01, 1.0))
        angle = 4 * radius + 2 * math.pi * arm / len(LABELS) + numbers.gauss(0, 0.25)
        yield f"{radius * math.cos(angle):.4f},{radius * math.sin(angle):.4f},{LABELS[arm]}\n"


THINGS = ("headphones", "kettle", "desk lamp", "backpack", "keyboard", "rain jacket", "water bottle", "tent")
DAYS = ("Monday", "last week", "two weeks ago", "yesterday", "Friday", "this morning", "the weekend")
OPENERS = ("", "Hello, ", "Hi there, ", "Good morning, ", "Sorry to bother you, ", "Dear team, ")
CLOSERS = ("", " Thanks!", " Please help.", " Can you check?", " I ordered it on {day}.")
MESSAGES = {  # some appear under two labels, as in real data
    "delivery": (
        "my {thing} has not arrived yet.",
        "where is the {thing} that I ordered {day}?",
        "the tracking page of my {thing} has not changed since {day}.",
        "the courier left the {thing} at the wrong address.",
        "when will the {thing} be shipped?",
        "the parcel with the {thing} came without the second box.",
        "the {thing} never came, I am tired of waiting and want my money back.",
    ),
    "refund": (
        "I want my money back for the {thing}.",
        "how do I return the {thing}?",
        "I sent the {thing} back {day} and was not paid yet.",
        "you charged me twice for the {thing}.",
        "please cancel my order of the {thing}.",
        "the refund for the {thing} does not show on my card.",
        "the {thing} never came, I am tired of waiting and want my money back.",
        "the {thing} is broken, what can you do about it?",
    ),
    "fault": (
        "the {thing} broke after one day.",
        "my {thing} stopped working {day}.",
        "there is a scratch on the {thing}.",
        "the {thing} makes a strange noise.",
        "a part of the {thing} is missing.",
        "the {thing} is smaller than the page says.",
        "the {thing} is broken, what can you do about it?",
    ),
    "account": (
        "I cannot log in since {day}.",
        "the password mail never comes.",
        "how can I change the address of my account?",
        "my account shows a {thing} that I never ordered.",
        "please delete my account and all my data.",
        "the app says that my session has expired.",
    ),
}


def _message(draw: random.Random) -> Row:
    """Return a customer message and its topic."""
    label = draw.choice(list(MESSAGES))
    text = draw.choice(OPENERS) + draw.choice(MESSAGES[label]) + draw.choice(CLOSERS)
    text = text.format(thing=draw.choice(THINGS), day=draw.choice(DAYS))
    return text[0].upper() + text[1:], label


FIRST = ("Anna", "James", "Maria", "Kofi", "Yuki", "Olga", "Tom", "Sara", "Wei", "Lena")
LAST = ("Weber", "Cole", "Rossi", "Mensah", "Tanaka", "Petrova", "Baker", "Haddad", "Chen", "Novak")
NAMES = {
    "PER": [f"{first} {last}" for first in FIRST for last in LAST],
    "ORG": [f"{name} {trade}" for name in ("Oslo", "Helio", "Lima", "Cole") for trade in ("Bank", "Labs", "Rail")],
    "LOC": ("Berlin", "Osaka", "Cape Town", "Lyon", "Shanghai", "Toronto", "Lima", "New Delhi", "Oslo", "Accra"),
}
REPORTS = (
    "{PER} joined {ORG} in {LOC} .",
    "{ORG} opened an office in {LOC} on Monday .",
    "{PER} , who lives in {LOC} , leads {ORG} .",
    "Shares of {ORG} fell after {PER} resigned .",
    "The mayor of {LOC} met {PER} last week .",
    "{ORG} and {ORG} signed a contract in {LOC} .",
    "{PER} moved from {LOC} to {LOC} .",
    "Workers of {ORG} went on strike , {PER} said .",
)


def _report(draw: random.Random) -> Row:
    """Return a news sentence with one token and its tag per row; the entities are people, companies and places."""
    rows = []
    for word in draw.choice(REPORTS).split():
        kind = word.strip("{}")
        name = draw.choice(NAMES[kind]).split() if kind in NAMES else []
        rows += [f"{part} {'I' if place else 'B'}-{kind}" for place, part in enumerate(name)] or [f"{word} O"]
    return tuple(rows)


WHO = (
    "a man", "a woman", "a child", "two girls", "an old man", "a young woman", "a boy", "three students", "a farmer",
    "two friends", "a nurse", "a tourist",
)  # fmt: skip
DOING = {  # premise: entailment, neutral, contradiction
    "playing the guitar": ("making music", "practising for a concert", "sleeping in a bed"),
    "riding a bicycle": ("moving on two wheels", "riding home from work", "sitting on a sofa"),
    "reading a newspaper": ("looking at a text", "looking for a job", "swimming in the sea"),
    "cooking soup": ("preparing food", "cooking for a friend", "driving a car"),
    "running in a park": ("moving outdoors", "training for a race", "sleeping at home"),
    "painting a wall": ("using a brush", "moving into a new flat", "eating lunch"),
    "talking on the phone": ("speaking", "calling a doctor", "swimming in a lake"),
    "climbing a rock": ("going up", "on holiday in Spain", "lying on the floor"),
}
PLACES = ("", " near the station", " in the morning", " beside a dog", " in the rain", " on a sunny day")
RELATIONS = ("entailment", "neutral", "contradiction")


def _inference(draw: random.Random) -> Row:
    """Return a premise, a hypothesis and their relation."""
    who, doing, label = draw.choice(WHO), draw.choice(list(DOING)), draw.randrange(len(RELATIONS))
    start = f"{who[0].upper()}{who[1:]} {'are' if who.endswith('s') else 'is'}"
    return f"{start} {doing}{draw.choice(PLACES)}.", f"{start} {DOING[doing][label]}.", RELATIONS[label]


SUBJECTS = {
    "the man": "der Mann", "the woman": "die Frau", "the child": "das Kind", "my brother": "mein Bruder",
    "our neighbor": "unser Nachbar", "the teacher": "die Lehrerin", "Anna": "Anna", "nobody": "niemand",
    "the doctor": "der Arzt", "a tourist": "ein Tourist", "the boy": "der Junge", "my sister": "meine Schwester",
}  # fmt: skip
VERBS = {
    ("reads", "liest"): {"a book": "ein Buch", "the newspaper": "die Zeitung", "a letter": "einen Brief"},
    ("buys", "kauft"): {"bread": "Brot", "a ticket": "eine Fahrkarte", "a new coat": "einen neuen Mantel"},
    ("sees", "sieht"): {"the house": "das Haus", "a white dog": "einen weißen Hund", "the sea": "das Meer"},
    ("writes", "schreibt"): {"a letter": "einen Brief", "a long report": "einen langen Bericht"},
    ("eats", "isst"): {"an apple": "einen Apfel", "soup": "Suppe", "bread with cheese": "Brot mit Käse"},
    ("looks for", "sucht"): {"the key": "den Schlüssel", "a new flat": "eine neue Wohnung", "work": "Arbeit"},
}
WHEN = {"": "", "today": "heute", "in the evening": "am Abend", "every day": "jeden Tag", "again": "wieder"}


def _translation(draw: random.Random) -> Row:
    """Return an English sentence and its German translation, which has a different word order."""
    (verb, verbs), who, when = draw.choice(list(VERBS)), draw.choice(list(SUBJECTS)), draw.choice(list(WHEN))
    what = draw.choice(list(VERBS[verb, verbs]))
    things, subject = VERBS[verb, verbs][what], SUBJECTS[who]
    if when and draw.random() < 0.5:  # a leading adverb moves the subject after the verb
        return _sentence(f"{when},", who, verb, what), _sentence(WHEN[when], verbs, subject, things)
    return _sentence(who, verb, what, when), _sentence(subject, verbs, WHEN[when], things)


def _sentence(*words: str) -> str:
    text = " ".join(word for word in words if word)
    return f"{text[0].upper()}{text[1:]}."


def _distinct(make: Callable[[random.Random], Row]) -> Iterator[Row]:
    """Yield an endless stream of distinct rows, so that splits do not overlap."""
    draw, seen = random.Random(make.__name__), set()
    while True:
        row = make(draw)
        key = row[:-1] or row  # the last cell is the label
        if key not in seen:
            seen.add(key)
            yield row


def _table(rows: Iterable[Row], names: Row, delimiter: str = ",") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def data_files(kind: str) -> dict[str, str]:
    """Return the data files for a kind of project, keyed by path."""
    if kind == "points":
        return {f"data/{split}.csv": "x,y,label\n" + "".join(points(split, count)) for split, count in SIZES.items()}
    make, ending, text = {
        "text": (_message, "csv", lambda rows: _table(rows, ["text", "label"])),
        "ner": (_report, "txt", lambda rows: "\n".join("\n".join(row) + "\n" for row in rows)),
        "pairs": (_inference, "csv", lambda rows: _table(rows, ["premise", "hypothesis", "label"])),
        "translation": (_translation, "tsv", lambda rows: _table(rows, ["en", "de"], "\t")),
    }[kind]
    rows = _distinct(make)
    return {f"data/{split}.{ending}": text(list(islice(rows, count))) for split, count in SIZES.items()}
