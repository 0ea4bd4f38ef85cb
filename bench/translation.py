"""Benchmark translation: training against a hand-written loop, and beam search against transformers and CTranslate2.

Each search runs in a separate process with two threads, and takes turns with the others (`bench.writers`), so that each
library uses its default memory settings. The hand-written loop takes turns with ours in one process, on the same
batches of Multi30k, as in `bench.texts`.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from alchemy.cli import main
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.token_budget import Budget
from alchemy.nn.sequences import Rows
from alchemy.task import AlchemyTask
from alchemy.tasks import Translation
from bench import loop
from bench.data import SETS
from bench.measure import Figure, ratio
from bench.texts import train
from bench.turns import turns
from bench.writers import SENTENCES, SHAPE, network

THREADS, BLOCK, LR, WARMUP = 2, 2, 0.005, 2000
TOKENS = 20
PIECES = SETS / "multi30k_en_de" / "bpe10k_revisit_mmt"
SEARCHES = ("alchemy", "transformers", "ctranslate2 float32", "ctranslate2 int8")


def figures(quick: bool = False) -> list[Figure]:
    os.environ["TTY_COMPATIBLE"] = "1"  # draw the progress bar as on a terminal
    rounds = 2 if quick else 20
    made = [*measure_searches(rounds), compare_allocators(rounds)]
    if not PIECES.is_dir():
        print(f"Multi30k not found in {SETS}: skipping training (set ALCHEMY_DATA to another folder)")
        return made
    name = "training a Transformer / plain PyTorch, wall (1.031 is 0.97 times the tokens per second)"
    return [*made, ratio(name, compare_with_plain(rounds), 1.031)]


# -- searches
def measure_searches(rounds: int) -> list[Figure]:
    with turns("bench.writers", SEARCHES, THREADS) as ways:
        before = {way.name: way.ask(2)[1] for way in ways}
        rows = [{way.name: way.ask(TOKENS) for way in ways} for _ in range(rounds)]
        for name in SEARCHES:
            seconds = statistics.median(row[name][0] for row in rows)
            memory = (rows[-1][name][1] - before[name]) / SENTENCES
            speed = f"{SENTENCES / seconds:.1f} sentences/s"
            print(f"{name}: {speed}, {memory:.2f} MiB more memory per sentence than for 2 tokens")
        long = [(ways[0].ask(4 * TOKENS)[0] / 4, row["alchemy"][0]) for row in rows[: max(2, rounds // 4)]]

    def against(other: str) -> list[tuple[float, float]]:
        return [(row["alchemy"][0], row[other][0]) for row in rows]

    return [
        ratio(f"beam search, {TOKENS} tokens / HF generate, wall", against("transformers"), 0.5),
        # PyTorch does not get closer than this
        ratio("the same / CTranslate2 in float32, wall", against("ctranslate2 float32"), 1.5),
        ratio(
            "CTranslate2 in int8 / HF generate, wall", [(row[SEARCHES[3]][0], row[SEARCHES[1]][0]) for row in rows], 0.5
        ),
        ratio(f"time per token of {4 * TOKENS} / of {TOKENS}, wall", long, 1.25),
    ]


def compare_allocators(rounds: int) -> Figure:
    """Compare steps that keep freed memory for the next step with steps that return it, on rows of varying length."""
    lengths = [8, 11, 13, 14, 16, 18, 22, 31]
    with turns("bench.writers", ("step, memory kept", "step"), 1) as ways:
        for way in ways:
            way.ask(16)
        pairs = [tuple(way.ask(lengths[place % len(lengths)])[0] for way in ways) for place in range(rounds)]
        memory = [way.ask(16)[1] for way in ways]
    print(f"peak memory of training: {memory[0]:.0f} MiB if kept, {memory[1]:.0f} MiB if returned")
    return ratio("a step with memory kept / returned, wall, 1 thread", pairs, 0.95)


# -- training, compared with a hand-written loop
@AlchemyTask.register()
class Watched(Translation):
    """Keep the batches for the other side."""

    seen: list[Any] = []

    def step(self, batch: Any) -> tuple[str, Any]:
        Watched.seen.append(batch)
        return super().step(batch)


class Plain:
    """The usual training loop, on the batches that our loop has just processed."""

    def __init__(self) -> None:
        self.model = network().train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LR, betas=(0.9, 0.98), fused=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min((step + 1) / WARMUP, (WARMUP / (step + 1)) ** 0.5)
        )
        self.loss = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0)

    def steps(self, count: int) -> None:
        for batch in Watched.seen[-count:]:
            self.step(batch)

    def step(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        source_BS, target_BT = batch["source"], batch["target"]
        scores_BTV = self.model(Rows(source_BS, source_BS != 0), batch["prev_output_tokens"])
        loss = self.loss(scores_BTV.flatten(0, 1), target_BT.flatten())
        loss.backward()
        self.optimizer.step()
        self.sched.step()
        return loss.item()


def config(updates: int) -> dict[str, Any]:
    pipe = {"type": "alchemy.pipeline.corpora.Parallel", "source": "train.en", "target": "train.de"}
    return {
        **loop.config("records", 0),
        "task": {"type": "bench.translation.Watched", "datasets": {"train": {"max_tokens": 4096, "pipes": [pipe]}}},
        "model": {
            "type": "alchemy.models.Translator",
            "network": {"type": "alchemy.nn.transformer.Transformer", **SHAPE},
        },
        "criterion": {"type": "alchemy.nn.losses.CrossEntropy", "label_smoothing": 0.1},
        "optim": {"type": "alchemy.optim.Adam", "lr": LR, "betas": [0.9, 0.98], "fused": True},
        "checkpoint": {"every": 100},
        "sched": {
            "type": "alchemy.sched.InverseSqrt",
            "num_training_steps": updates,
            "num_warmup_steps": min(WARMUP, updates),
            "pipes": [{"type": "bench.loop.Blocks", "plain": "bench.translation.Plain", "block": BLOCK, "wall": True}],
        },
    }


def compare_with_plain(pairs: int) -> list[tuple[float, float]]:
    """Return pairs of (ours, plain) seconds per block, without the two warm-up blocks."""
    torch.set_num_threads(THREADS)
    loop.Blocks.pairs, Watched.seen = [], []
    sides = [part for side in ("en", "de") for part in ("--side", f"{side}={PIECES / f'train.{side}.gz'}")]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        main(["data", "build", "train", *sides, "--joined"])
        print_padding({side: Corpus(f"train.{side}").lengths for side in ("en", "de")})
        train(config((pairs + 2) * BLOCK + 1))
    tokens = sum(int(batch["target_lengths"].sum()) for batch in Watched.seen[2 * BLOCK : -1])
    seconds = [sum(part) for part in zip(*loop.Blocks.pairs[2:])]
    speeds = [f"{name} {tokens / total:,.0f}" for name, total in zip(("alchemy", "plain"), seconds)]
    print(f"target tokens/s: {', '.join(speeds)}")
    return loop.Blocks.pairs[2:]


def print_padding(lengths: Mapping[str, np.ndarray]) -> None:
    """Print the share of padding with and without sorting by length, and the time of making the batches."""
    tokens = sum(int(column.sum()) for column in lengths.values())
    for sorted_ in (True, False):
        begin = time.perf_counter()
        batches = list(Budget(lengths, max_tokens=4096, sort_by_length=sorted_).from_batch(0, seed=0))
        seconds = time.perf_counter() - begin
        places = sum(len(batch) * int(column[batch].max()) for batch in batches for column in lengths.values())
        order = "by length" if sorted_ else "in data order"
        print(f"{len(batches)} batches {order}, made in {1000 * seconds:.0f} ms: {1 - tokens / places:.1%} padding")
