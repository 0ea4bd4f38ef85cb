"""Compare the text template with TF-IDF and logistic regression: test errors, and CPU time.

Both read the same CSV files. Ours is `alchemy run` with the default model and three seeds; the other is scikit-learn
with its defaults, on character or word 1-2-grams. Its second accuracy is that of the C that is best on dev.
"""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import lzma
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.cli.starter.config import EPOCHS, MODELS, OPTIMIZERS
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError
from bench.data import ALCHEMY, ROOT, SETS
from bench.measure import Figure, absolute

SECONDS = 300  # CPU time per seed
LIMITS = (1, 3, 10, 30)  # values of C
Pairs = list[tuple[str, str]]  # text and label


class Splits(NamedTuple):
    """A dataset, tokenized into words if `words` is set, else into characters."""

    words: bool
    train: Pairs
    dev: Pairs
    test: Pairs


def figures(quick: bool = False) -> list[Figure]:
    made = []
    for name, read in READERS.items():
        try:
            splits = read()
        except (OSError, ImportError, AlchemyError) as error:
            print(f"{name}: skipped: {error} (set ALCHEMY_DATA to the folder of the data)")
            continue
        if quick:
            splits = splits._replace(train=splits.train[:500], dev=splits.dev[:200], test=splits.test[:200])
        made += compare(name, splits, seeds=1 if quick else 3)
    return made


def compare(name: str, splits: Splits, seeds: int) -> list[Figure]:
    plain, (limit, best) = tfidf(splits)
    runs = [train(splits, seed) for seed in range(1, seeds + 1)]
    wrong = [round(100 * (1 - accuracy), 2) for accuracy, _ in runs]
    print(f"{name}: accuracy {', '.join(f'{accuracy:.4f}' for accuracy, _ in runs)}; TF-IDF {plain:.4f}", end="")
    print(f", with C = {limit} {best:.4f}")
    errors = f"{name}, errors of the template, bound by those of TF-IDF (with C = {limit}: {100 * (1 - best):.2f})"
    return [
        absolute(errors, wrong, round(100 * (1 - plain), 2), "%"),
        absolute(f"{name}, CPU time per seed", [seconds for _, seconds in runs], SECONDS, "s"),
    ]


# -- both sides
def config(words: bool) -> dict[str, Any]:
    """Return the config that `alchemy new --kind text` writes, for three files."""
    reads = {"tokenizer": "Words", "learn": {"lower": True}} if words else {"tokenizer": "Characters"}
    files = {split: f"{split}.csv" for split in ("train", "dev", "test")}
    return {
        "task": {"type": "Classification", **reads, "data": files},
        "model": MODELS["text"],
        "optim": OPTIMIZERS["text"],
        "sched": {"type": "LineWarmup", "epochs": EPOCHS["text"], "num_warmup_steps": 0.1},
    }


def train(splits: Splits, seed: int) -> tuple[float, float]:
    """Return the test accuracy of the weights that are best on dev, and the CPU seconds of training and testing."""
    with tempfile.TemporaryDirectory() as folder:
        for split in ("train", "dev", "test"):
            with open(Path(folder, f"{split}.csv"), "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows([("text", "label"), *splits._asdict()[split]])
        Path(folder, "text.toml").write_text(dumps(config(splits.words)), "utf-8")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [ALCHEMY, "run", "text.toml", "--test", "--seeds", str(seed), "--device", "-1"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        (report,) = Path(folder).rglob("test_report.json")
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return json.loads(report.read_text("utf-8"))["scores"]["accuracy"], seconds


def tfidf(splits: Splits) -> tuple[float, tuple[int, float]]:
    """Return the test accuracy with C = 1; and the C that is best on dev, with its test accuracy."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    grams = TfidfVectorizer(analyzer="word" if splits.words else "char", ngram_range=(1, 2))
    rows = grams.fit_transform(text for text, _ in splits.train)
    sides = [(grams.transform(text for text, _ in side), [label for _, label in side]) for side in splits[2:]]
    scores = {}
    for limit in LIMITS:
        model = LogisticRegression(max_iter=1000, C=limit).fit(rows, [label for _, label in splits.train])
        scores[limit] = [model.score(*side) for side in sides]
    best = max(LIMITS, key=lambda limit: scores[limit][0])
    return scores[1][1], (best, scores[best][1])


# -- the data
UNPACK: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".xz": lzma.decompress}


def read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    data = path.read_bytes()
    if path.suffix in UNPACK:
        data = UNPACK[path.suffix](data)
    return data.decode(encoding).removesuffix("\n").split("\n")


def titles() -> Splits:
    def read(name: str) -> Pairs:
        return [(text, label) for text, label in (line.split("\t") for line in read_lines(folder / name))]

    folder = SETS / "thucnews_title10"
    return Splits(False, read("train_first45k.txt.gz"), read("dev.txt"), read("test.txt"))


def read_labeled(path: Path, encoding: str = "utf-8") -> Pairs:
    return [(text, label) for label, text in (line.split(" ", 1) for line in read_lines(path, encoding))]


def hold_out(rows: Pairs, share: float = 0.1) -> tuple[Pairs, Pairs]:
    """Shuffle rows and split off a share of them; return the rest and the share."""
    rows = random.Random(0).sample(rows, len(rows))
    cut = int(share * len(rows))
    return rows[cut:], rows[:cut]


def questions() -> Splits:
    folder = SETS / "trec"
    return Splits(
        True,
        *hold_out(read_labeled(folder / "TREC.train.all", "latin-1")),
        read_labeled(folder / "TREC.test.all", "latin-1"),
    )


def sentences() -> Splits:
    folder = SETS / "sst2_sentences"
    return Splits(True, *(read_labeled(folder / f"stsa.binary.{name}") for name in ("train.gz", "dev", "test")))


def reviews() -> Splits:
    folder = str(ROOT / "examples" / "reviews")
    sys.path.insert(0, folder)
    try:
        pipe = importlib.import_module("src.data").Reviews
    finally:
        sys.path.remove(folder)
    sides = [[(row["text"], str(row["label"])) for row in pipe(split=name)] for name in ("train", "dev", "test")]
    return Splits(False, *sides)


def relations() -> Splits:
    """Read SemEval-2010 task 8 as plain text, with entity markers. It was not used to choose the defaults."""
    train, test = (
        [(text, label) for label, text in (line.split("\t") for line in read_lines(SETS / "semeval2010_task8" / name))]
        for name in ("train.tsv.gz", "test.tsv")
    )
    return Splits(True, *hold_out(train), test)


def names() -> Splits:
    """Read which kinds of names a sentence of the People's Daily contains. It was not used to choose the defaults."""

    def read(name: str) -> Pairs:
        rows: Pairs = []
        text, kinds = "", set[str]()
        for line in [*read_lines(SETS / "ner_zh_peopledaily" / name), ""]:
            sign, _, tag = line.partition(" ")
            if sign:
                text, kinds = text + sign, kinds | {tag[2:]}
            elif text:
                rows.append((text, "+".join(sorted(kinds - {""})) or "none"))
                text, kinds = "", set[str]()
        return rows

    train, dev = hold_out(read("train.txt.xz"))
    return Splits(False, train[:10_000], dev[:2_000], read("dev.txt.gz"))


READERS: dict[str, Callable[[], Splits]] = {
    "THUCNews titles": titles,
    "TREC questions": questions,
    "SST-2 sentences": sentences,
    "reviews": reviews,
    "SemEval relations as texts": relations,
    "names in People's Daily": names,
}
