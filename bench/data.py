"""Benchmark the data package: building corpora, batching a million lengths, loading from a mapped corpus, and memory.

fairseq cannot be installed here; its speed is quoted from BASELINES.md, measured on a comparable machine. Everything
else is measured side by side. The text is both sides of Multi30k, tokenized, repeated up to a hundred times.
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

from bench.measure import Figure, absolute, ratio

ROOT = Path(__file__).parent.parent
SETS = Path(os.environ.get("ALCHEMY_DATA", ROOT.parent / "shared" / "data"))
TEXT = SETS / "multi30k_en_de" / "tok"
ALCHEMY = str(Path(sys.executable).with_name("alchemy"))
LINES = 58_000
FAIRSEQ = {1: 4_013, 10: 7_672}  # lines/s of fairseq-preprocess, by the number of repetitions of the text
BATCH, LENGTH = 64, 50
MIB = 2**20


def figures(quick: bool = False) -> list[Figure]:
    made = [*measure_batching(5 if quick else 40), *measure_loading(5 if quick else 40)]
    if not TEXT.is_dir():
        print(f"Multi30k not found in {SETS}: skipping the build benchmarks (set ALCHEMY_DATA to another folder)")
        return made
    with tempfile.TemporaryDirectory() as folder:
        sides = {times: write_sides(Path(folder), times) for times in ((1, 10) if quick else (1, 10, 100))}
        made += measure_building(sides, 3 if quick else 40)
        made += measure_bpe(sides[1], 3 if quick else 40)
        made += measure_memory(sides, 1 if quick else 5)
    return made


def write_sides(folder: Path, times: int) -> list[str]:
    """Write both sides of the text, repeated; return the arguments of `alchemy data build`."""
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


def time_build(arguments: list[str], workers: int, out: Path) -> float:
    """Return the wall time of the command, in seconds."""
    begin = time.perf_counter()
    command = [ALCHEMY, "data", "build", str(out), *arguments, "--workers", str(workers), "--force"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def measure_building(sides: dict[int, list[str]], rounds: int) -> list[Figure]:
    made, second = [], []
    with tempfile.TemporaryDirectory() as folder:
        for times, speed in FAIRSEQ.items():
            seconds = [time_build(sides[times], 2, Path(folder) / "c") for _ in range(rounds)]
            name = f"building {LINES * times:,} lines, in units of a 20th of fairseq's time"
            made.append(ratio(name, [(value, LINES * times / speed / 20) for value in seconds], 1.0))
        for _ in range(rounds):
            one = time_build(sides[10], 1, Path(folder) / "c")
            second.append((time_build(sides[10], 2, Path(folder) / "c"), one))
    return [*made, ratio("building with two processes / with one", second, 1.0)]


def measure_bpe(arguments: list[str], rounds: int) -> list[Figure]:
    """Compare building a BPE corpus with the tokenizer alone on the same lines, both on one core."""
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
            (cpu_seconds(lambda: build(recipe, force=True)), cpu_seconds(lambda: inner.encode_batch(lines)))
            for _ in range(rounds)
        ]
    return [ratio("building with BPE / tokenizers.encode_batch alone, CPU", pairs, 1.3)]


def cpu_seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def measure_batching(rounds: int) -> list[Figure]:
    from alchemy.data.token_budget import Budget

    draw = np.random.default_rng(0)
    source = np.clip(draw.lognormal(3, 0.5, 1_000_000), 1, 250).astype(np.int64)
    lengths = {"source": source, "target": np.clip(source * draw.normal(1, 0.1, len(source)), 1, 250).astype(np.int64)}
    seconds = [cpu_seconds(lambda: Budget(lengths, max_tokens=4096, shuffle=True)) for _ in range(rounds)]
    return [absolute("batching a million lengths, including the sort, CPU", seconds, 0.1, "s")]


def measure_loading(rounds: int) -> list[Figure]:
    """Measure microseconds per sample, from the mapped corpus to padded int64 batches, including the ledger."""
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
    return [absolute("loading a sample of 50 tokens, batches of 64, CPU", values, 1.0, "us")]


def measure_memory(sides: dict[int, list[str]], rounds: int) -> list[Figure]:
    """Measure the peak anonymous memory of all processes of a build.

    Five pairs instead of forty: the longer build takes 15 seconds, and memory varies by only 1 %, even on a busy
    machine.
    """
    few, many = min(sides), max(sides)
    pairs = [(measure_peak(sides[many]), measure_peak(sides[few])) for _ in range(rounds)]
    name = f"memory of a build of {LINES * many:,} lines, all processes"
    return [
        absolute(name, [value / MIB for value, _ in pairs], 400.0, "MiB"),
        ratio(f"memory for {LINES * many:,} lines / for {LINES * few:,}", pairs, 1.1),
    ]


def measure_peak(arguments: list[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [ALCHEMY, "data", "build", f"{folder}/c", *arguments, "--workers", "2"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        most = 0.0
        while process.poll() is None:
            most = max(most, anonymous(process.pid))
            time.sleep(0.002)  # the peak at the end of a short build lasts a few tens of milliseconds
    return most


def anonymous(pid: int) -> float:
    total = 0.0
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                total += int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # the process has ended
        return total
    return total + sum(anonymous(int(child)) for child in children)
