"""Data: building corpora of Multi30k, batches of a million lengths, loading from a mapped corpus, and memory.

fairseq cannot be installed here; its speed is quoted from BASELINES.md, measured on this kind of machine. All else is
measured side by side. The text is that of Multi30k, tokenized, both sides; also ten and a hundred times over.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measure import Figure, measured, ratio

ROOT = Path(__file__).parent.parent
SETS = Path(os.environ.get("ALCHEMY_DATA", ROOT.parent / "shared" / "data"))
TEXT = SETS / "multi30k_en_de" / "tok"
ALCHEMY = str(Path(sys.executable).with_name("alchemy"))
LINES = 58_000
FAIRSEQ = {1: 4_013, 10: 7_672}  # lines a second of fairseq-preprocess, on the text once and ten times over
BATCH, LENGTH = 64, 50
MIB = 2**20


def figures(quick: bool = False) -> list[Figure]:
    found = [*batching(5 if quick else 40), *loading(5 if quick else 40)]
    if not TEXT.is_dir():
        print(f"no Multi30k in {SETS}: building is not measured (ALCHEMY_DATA names another folder)")
        return found
    with tempfile.TemporaryDirectory() as folder:
        sides = {times: written(Path(folder), times) for times in ((1, 10) if quick else (1, 10, 100))}
        found += building(sides, 3 if quick else 40)
        found += pieces_of_words(sides[1], 3 if quick else 40)
        found += memory(sides, 1 if quick else 5)
    return found


def written(folder: Path, times: int) -> list[str]:
    """The arguments that name both sides of the text, so many times over."""
    arguments = []
    for side in ("en", "de"):
        with gzip.open(TEXT / f"train.lc.norm.tok.{side}.gz") as source:
            data = source.read()
        path = folder / f"{times}.{side}"
        with open(path, "wb") as file:
            for _ in range(times):
                file.write(data)
        arguments += ["--side", f"{side}={path}"]
    return arguments


def built(arguments: list[str], workers: int, out: Path) -> float:
    """Wall seconds of the command, from its start to its end."""
    begin = time.perf_counter()
    command = [ALCHEMY, "data", "build", str(out), *arguments, "--workers", str(workers), "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def building(sides: dict[int, list[str]], rounds: int) -> list[Figure]:
    found, second = [], []
    with tempfile.TemporaryDirectory() as folder:
        for times, speed in FAIRSEQ.items():
            seconds = [built(sides[times], 2, Path(folder) / "c") for _ in range(rounds)]
            name = f"building {LINES * times:,} lines, in units of a 20th of fairseq's time"
            found.append(ratio(name, [(value, LINES * times / speed / 20) for value in seconds], 1.0))
        for _ in range(rounds):
            one = built(sides[10], 1, Path(folder) / "c")
            second.append((built(sides[10], 2, Path(folder) / "c"), one))
    return [*found, ratio("building with two processes / with one", second, 1.0)]


def pieces_of_words(arguments: list[str], rounds: int) -> list[Figure]:
    """A corpus of BPE, against nothing but the tokenizer on the same lines; both on one core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import tokenizers

    from alchemy.data.corpus.build import build
    from alchemy.data.corpus.recipe import Recipe
    from alchemy.text import BPE

    path = Path(arguments[1].partition("=")[2])
    lines = path.read_text("utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        bpe = BPE.train(lines, size=8000)
        bpe.save(Path(folder) / "bpe")
        inner = tokenizers.Tokenizer.from_file(str(Path(folder) / "bpe" / "tokenizer.json"))
        recipe = Recipe(Path(folder) / "c", {"": [path]}, tokenizer={"": Path(folder) / "bpe"})
        pairs = [
            (cpu(lambda: build(recipe, force=True)), cpu(lambda: inner.encode_batch(lines))) for _ in range(rounds)
        ]
    return [ratio("building with BPE / tokenizers.encode_batch alone, CPU", pairs, 1.3)]


def cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def batching(rounds: int) -> list[Figure]:
    from alchemy.data.token_budget import Budget

    draw = np.random.default_rng(0)
    source = np.clip(draw.lognormal(3, 0.5, 1_000_000), 1, 250).astype(np.int64)
    lengths = {"source": source, "target": np.clip(source * draw.normal(1, 0.1, len(source)), 1, 250).astype(np.int64)}
    seconds = [cpu(lambda: Budget(lengths, max_tokens=4096, shuffle=True)) for _ in range(rounds)]
    return [measured("batches of a million lengths, sort included, CPU", seconds, 0.1, "s")]


def loading(rounds: int) -> list[Figure]:
    """Microseconds a sample, from the mapped corpus to padded int64 batches as the loop gets them, the ledger on."""
    from alchemy.data.corpus.layout import Manifest
    from alchemy.data.loader import get_dataloader
    from alchemy.pipeline.corpora import Mapped
    from alchemy.records.ledger import Ledger

    draw, count = np.random.default_rng(0), 2000 * BATCH
    lengths = draw.integers(LENGTH - 5, LENGTH + 6, count)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.uint64)
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "c"
        draw.integers(4, 9000, int(offsets[-1])).astype(np.uint16).tofile(f"{name}.bin")
        offsets.tofile(f"{name}.idx")
        Manifest(
            sentences=count,
            tokens=int(offsets[-1]),
            dtype="uint16",
            longest=LENGTH + 5,
            unknown=0,
            vocabulary=9000,
            pad=0,
            bos=1,
            eos=2,
            unk=3,
            tokenizer={},
            sources=[],
            options={},
        ).write(Path(f"{name}.json"))
        data, values = Mapped(str(name)), []
        for epoch in range(rounds):
            ledger = Ledger(Path(folder) / f"{epoch}.jsonl")
            begin = time.process_time()
            loader = get_dataloader(data, epoch, max_sentences=BATCH, shuffle=True)
            for update, _ in enumerate(loader, 1):
                ledger.add_step(loader.own)
                ledger.close_update(update, epoch)
                if update % 100 == 0:
                    ledger.flush()
            values.append((time.process_time() - begin) / count * 1e6)
            ledger.close()
    return [measured("loading a sample of 50 tokens, batches of 64, CPU", values, 1.0, "us")]


def memory(sides: dict[int, list[str]], rounds: int) -> list[Figure]:
    """The most anonymous memory that all processes of a build have at one moment.

    Five pairs instead of forty: the longer build takes a quarter of a minute, and memory varies by one part in a
    hundred, whatever else the machine does.
    """
    few, many = min(sides), max(sides)
    pairs = [(peak(sides[many]), peak(sides[few])) for _ in range(rounds)]
    name = f"memory of a build of {LINES * many:,} lines, all processes"
    return [
        measured(name, [value / MIB for value, _ in pairs], 400.0, "MiB"),
        ratio(f"memory for {LINES * many:,} lines / for {LINES * few:,}", pairs, 1.1),
    ]


def peak(arguments: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [ALCHEMY, "data", "build", f"{folder}/c", *arguments, "--workers", "2"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        most = 0.0
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            time.sleep(0.002)  # the end of a short build, where the peak is, lasts a few hundredths of a second
    return most


def anonymous(pid: int) -> float:
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                total += int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended meanwhile
        return total
    return total + sum(anonymous(int(child)) for child in children)
