"""Benchmark text classification: a small BERT against a hand-written loop, and sorting by length against padding.

The BERT is a transformers model with random weights, 2 layers and width 128. The loop takes turns with ours in one
process, as in `bench.loop`, on random text of 32 tokens. Batches of similar length contain titles of THUCNews.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import random
import tempfile
import time
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from alchemy.pipeline import EndEpochPipeline, SchedPipeline
from alchemy.runner import run
from alchemy.task import AlchemyTask
from alchemy.tasks import Classification
from alchemy.text import Characters, load_tokenizer
from bench import loop
from bench.data import SETS
from bench.measure import Figure, ratio

TITLES = SETS / "thucnews_title10" / "train_first45k.txt.gz"
LENGTH, BATCH, BLOCK, CLASSES = 32, 128, 4, 10
EPOCH = 16 * BATCH  # titles per sorting block; a larger block needs less padding
LR, CLIP, WARMUP, DROPOUT = 5e-5, 1.0, 10, 0.1
SPECIALS = {"pad": "[PAD]", "bos": "[CLS]", "eos": "[SEP]", "unk": "[UNK]"}


def figures(quick: bool = False) -> list[Figure]:
    torch.set_num_threads(1)
    os.environ["TTY_COMPATIBLE"] = "1"  # draw the progress bar as on a terminal
    pairs = 2 if quick else 40
    made = [ratio("training a small BERT / plain PyTorch, CPU", compare_with_plain(pairs), 1.03)]
    if not TITLES.is_file():
        print(f"THUCNews not found in {SETS}: skipping batches of similar length (set ALCHEMY_DATA to another folder)")
        return made
    name = "titles in batches of similar length / padded to 32, CPU (0.8 is 1.25 times the samples per second)"
    return [*made, ratio(name, compare_with_padding(pairs), 0.8)]


# -- shared by both figures
@contextlib.contextmanager
def prepare(rows: list[list[str]]) -> Iterator[None]:
    """Change into a temporary folder with the rows, a character tokenizer trained on them, and a BERT."""
    from transformers import BertConfig, BertModel, logging  # imported here because it is slow

    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")
        tokenizer = Characters.train((text for text, _ in rows), specials=SPECIALS)
        tokenizer.save("characters")
        shape = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512}
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=tokenizer.size, **shape)).save_pretrained("bert")
        yield


def split(**batches: Any) -> dict[str, Any]:
    source = {"type": "alchemy.pipeline.processors.TextClassification", "path": "train.tsv", "format": "tsv"}
    return {"pipes": [{**source, "text": 0, "label": 1}], "shuffle": True, **batches}


def config(task: str, splits: dict[str, Any], epochs: int, **pipe: Any) -> dict[str, Any]:
    return {
        **loop.config("records", 0),
        "task": {
            "type": task,
            "tokenizer": "characters",
            "template": "bos $A eos",
            "labels": list(map(str, range(CLASSES))),
            "max_length": LENGTH,
            "long": "only_first",
            "cache": True,
            "datasets": splits,
        },
        "model": {
            "type": "alchemy.models.TextClassifier",
            "encoder": {"type": "alchemy.models.pretrained.Pretrained", "path": "bert"},
            "head": {"type": "alchemy.models.heads.Pool"},
            "dropout": DROPOUT,
        },
        "optim": {"type": "alchemy.optim.AdamW", "lr": LR, "fused": True, "max_grad_norm": CLIP},
        "checkpoint": {"every": 100},
        "sched": {
            "type": "alchemy.sched.LineWarmup",
            "epochs": epochs,
            "num_warmup_steps": WARMUP,
            "pipes": [pipe],
        },
    }


def train(config: dict[str, Any]) -> None:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        run([config], device=[-1], raise_errors=True)


# -- comparison with a hand-written loop
class Net(nn.Module):
    """The usual classifier on top of BERT."""

    def __init__(self, folder: str) -> None:
        from transformers import BertModel

        super().__init__()
        self.bert = BertModel.from_pretrained(folder)
        self.dropout, self.out = nn.Dropout(DROPOUT), nn.Linear(self.bert.config.hidden_size, CLASSES)

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        scores_BC: Tensor = self.out(self.dropout(self.bert(ids_BT, attention_mask=mask_BT).pooler_output))
        return scores_BC


def encode_all() -> list[tuple[Tensor, int]]:
    """Encode all samples in advance, as the cache does on our side."""
    tokenizer = load_tokenizer("characters")
    rows = [line.split("\t") for line in Path("train.tsv").read_text("utf-8").splitlines()]
    ids = [[tokenizer.bos, *tokenizer.encode(text), tokenizer.eos] for text, _ in rows]
    return [(torch.tensor(row), int(label)) for row, (_, label) in zip(ids, rows)]


def collate(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    ids_BT = pad_sequence([ids for ids, _ in samples], batch_first=True)
    return ids_BT, (ids_BT != 0).long(), torch.tensor([label for _, label in samples])


class Plain:
    """The usual training loop: zero_grad, forward, backward, clip, step, schedule, and reading the loss."""

    def __init__(self) -> None:
        samples: Any = encode_all()  # Any: DataLoader accepts a list, its type hints do not
        updates = len(samples) // BATCH
        self.model = Net("bert").train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, fused=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(step / WARMUP, max(0.0, (updates - step) / (updates - WARMUP)))
        )
        self.batches = iter(DataLoader(samples, batch_size=BATCH, shuffle=True, collate_fn=collate))

    def steps(self, count: int) -> float:
        total = 0.0
        for _ in range(count):
            ids_BT, mask_BT, labels_B = next(self.batches)
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(ids_BT, mask_BT), labels_B)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.sched.step()
            total += loss.item()
        return total


def compare_with_plain(pairs: int) -> list[tuple[float, float]]:
    """Return pairs of (ours, plain) CPU seconds per block of one epoch, without the two warm-up blocks."""
    draw = random.Random(0)
    signs = [chr(0x4E00 + place) for place in range(3000)]
    rows = [
        ["".join(draw.choices(signs, k=LENGTH - 2)), str(draw.randrange(CLASSES))]
        for _ in range((pairs + 2) * BLOCK * BATCH)
    ]
    loop.Blocks.pairs = []
    turns = {"type": "bench.loop.Blocks", "plain": "bench.texts.Plain", "block": BLOCK}
    with prepare(rows):
        train(config("alchemy.tasks.Classification", {"train": split(batch_size=BATCH)}, 1, **turns))
    return loop.Blocks.pairs[2:]


# -- comparison with padding
@AlchemyTask.register()
class Sides(Classification):
    """Train on `train` and `padded` in alternating epochs, and count titles, tokens and padded positions."""

    counts: dict[str, list[tuple[int, int, int]]] = {}

    @property
    def side(self) -> str:
        sched = self.run.train_sched
        return "padded" if sched is not None and sched.cur_epoch % 2 else "train"

    def dataset(self, split: str) -> tuple[Any, dict[str, Any]]:
        return super().dataset(self.side if split == "train" else split)

    def step(self, batch: Any) -> tuple[str, MutableMapping[str, Any]]:
        mask_BT = batch["mask"]
        Sides.counts[self.side].append((len(mask_BT), int(mask_BT.sum()), mask_BT.numel()))
        return super().step(batch)


@SchedPipeline.register()
class Epochs(EndEpochPipeline):
    """Measure the CPU seconds of each epoch."""

    seconds: list[float] = []

    def __init__(self) -> None:
        super().__init__()
        self.begin = time.process_time()

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        Epochs.seconds.append(time.process_time() - self.begin)
        self.begin = time.process_time()
        return kwargs


def compare_with_padding(pairs: int) -> list[tuple[float, float]]:
    """Return pairs of (similar length, padded to 32) CPU seconds for the same titles, without the warm-up epochs."""
    with gzip.open(TITLES, "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in itertools.islice(file, EPOCH)]
    fixed = {"max_length": LENGTH, "fixed": True}
    wide = {"type": "alchemy.data.collate.Pad", "fields": {"input_ids": {**fixed, "mask": "mask"}, "segments": fixed}}
    splits = {"train": split(max_sentences=BATCH), "padded": split(batch_size=BATCH, collate_fn=wide)}
    Epochs.seconds, Sides.counts = [], {side: [] for side in splits}
    with prepare(rows):
        train(config("bench.texts.Sides", splits, 2 * pairs + 2, type="bench.texts.Epochs"))
    for name, side in (("similar length", "train"), ("padded to 32", "padded")):
        titles, tokens, places = map(sum, zip(*Sides.counts[side]))
        rest = 1 - tokens / places
        print(f"{name}: {tokens / titles:.1f} tokens per title, in rows of {places / titles:.1f}, {rest:.1%} padding")
    return list(zip(Epochs.seconds[2::2], Epochs.seconds[3::2], strict=True))
