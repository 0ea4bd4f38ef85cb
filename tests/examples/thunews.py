"""A small corpus, tiny pretrained models, and the command of the example, for its tests."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.launch.project_imports import add_to_path
from tests.models.tiny import folder

EXAMPLE = Path(__file__).parents[2] / "examples" / "thunews"
WORDS = {"体育": "球赛冠军", "财经": "股票基金", "教育": "高考学校"}
LABELS = sorted(WORDS)
TRAIN = [(label, f"{word}消息{number}号Ab") for number in range(8) for label, word in WORDS.items()]
SPECIAL = {"xlnet": ("<pad>", "<unk>", "<sep>", "<cls>"), "roberta": ("<s>", "<pad>", "</s>", "<unk>")}
ALL = ("--do_train", "--do_eval", "--do_predict")
LIKE_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
TEMPLATES = {"xlnet": "$A <sep> <cls>:2", "roberta": "<s> $A </s>"}


@contextlib.contextmanager
def command() -> Iterator[Any]:
    """Import the module run.py as a program; its package `src` is removed afterwards."""
    path = list(sys.path)
    add_to_path(str(EXAMPLE / "src"))
    spec = importlib.util.spec_from_file_location("thunews_run", EXAMPLE / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        yield module
    finally:
        sys.path[:] = path
        for name in [name for name in sys.modules if name == "src" or name.startswith("src.")]:
            del sys.modules[name]


def flags(*more: str, **values: Any) -> list[str]:
    """Return the flags of a short training run on the CPU; `values` replace or add some."""
    given: dict[str, Any] = {"task_name": "THUNews", "model_type": "bert_cnn", "model_name_or_path": "bert"}
    given |= {"data_dir": "data", "output_dir": "out", "max_seq_length": 20, "learning_rate": 0.01, "filter_num": 8}
    return [*(f"--{name}={value}" for name, value in (given | values).items()), "--no_cuda", *more]


def furnished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write data and a model to a folder, and change into it."""
    monkeypatch.chdir(folder)
    write_data(folder / "data")
    write_bert(folder / "bert")
    return folder


def write_data(root: Path, **files: str) -> Path:
    """Write train.csv, dev.csv and test.csv; `files` replace the default contents."""
    rows = "".join(f"{label},{text}\n" for label, text in TRAIN)
    texts = "".join(f"{text}\n" for _, text in TRAIN[5::-1])
    usual = {"train": f"labels,text\n{rows}", "dev": f"labels,text\n{rows}", "test": f"text\n{texts}"}
    root.mkdir(parents=True, exist_ok=True)
    for name, content in (usual | files).items():
        (root / f"{name}.csv").write_text(content, encoding="utf-8")
    return root


def write_bert(root: Path, texts: list[str] | None = None, case: bool = False) -> Path:
    """Write a model folder in the format of 2019: config.json, weights, and a vocab.txt of all characters."""
    chars = sorted({char for text in texts or [text for _, text in TRAIN] for char in (text if case else text.lower())})
    vocab = [*LIKE_BERT, "[MASK]", *chars, *(f"##{char}" for char in chars)]
    path = sized(folder(root.parent / "made", "bert"), len(vocab)).rename(root)
    (root / "vocab.txt").write_text("\n".join(vocab) + "\n", encoding="utf-8")
    return path


def sized(path: Path, size: int) -> Path:
    """Write a model with `size` ids and random weights to a folder."""
    transformers = pytest.importorskip("transformers", reason="the extra `text` is not installed")
    config = transformers.AutoConfig.from_pretrained(path, vocab_size=size)
    torch.manual_seed(1)
    transformers.AutoModel.from_config(config).save_pretrained(path)
    return path


def write_model(root: Path, kind: str) -> Path:
    """Write a tiny model of any kind with a character tokenizer.json and the special tokens of its family."""
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `text` is not installed")
    special = SPECIAL.get(kind, LIKE_BERT)
    vocab = {token: place for place, token in enumerate([*special, *sorted({c for _, text in TRAIN for c in text})])}
    path = sized(folder(root, kind), len(vocab))
    unknown = next(token for token in special if "unk" in token.lower())
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token=unknown))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    inner.add_special_tokens(list(special))
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single=TEMPLATES.get(kind, "[CLS] $A [SEP]"), special_tokens=[(token, vocab[token]) for token in special]
    )
    inner.save(str(path / "tokenizer.json"))
    return path


def tables(output: Path) -> Mapping[str, str]:
    """Read eval_results.txt as a dict."""
    return dict(line.split(" = ") for line in (output / "eval_results.txt").read_text().splitlines())


def rows(output: Path) -> list[dict[str, str]]:
    """Read predicted.csv as one dict per row."""
    with (output / "predicted.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def environment() -> dict[str, str]:
    """Return the environment of a separate process: one thread, as here, so that sums have the same bits."""
    return {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
