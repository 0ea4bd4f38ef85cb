"""Invalid files and numbers of models are rejected, with the problem and a fix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.models.encoders import Embedding, Recurrent, Transformer
from alchemy.models.fasttext import NGrams
from alchemy.models.heads import CNN, DPCNN, GRU, LSTM, RCNN, Attention
from alchemy.models.pretrained import Pretrained
from tests.models.tiny import folder, words


def test_vectors_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 3\nw01 1 2 3\nw05 4 5 6\nabsent 7 8 9\n")
    encoder = Embedding(words(), dim=3, vectors=str(path), frozen=True)
    table, tokenizer = encoder.embed.table.weight, words()
    assert table[tokenizer.id_of("w05")].tolist() == [4, 5, 6]
    assert not table.requires_grad


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 4\nw01 1 2 3 4\nw05 4 5 6 7\n", "vectors.txt:1 a word vector has 4 values, expected 3; set dim = 4"),
        ("w01 1 2 3 4\nw05 4 5 6 7\n", "vectors.txt:1 a word vector has 4 values, expected 3; set dim = 4"),
        ("w01 1 x 3\n", "vectors.txt:1 invalid number"),
        ("w05 1 2 3\nw01 1 nan 3\n", "vectors.txt:2 a word vector has a non-finite value; remove the line"),
        ("w05 1 2 3\nw01 1 2\n", "vectors.txt:2 a word vector has 2 values, expected 3; the line is broken"),
        ("2 3\nw01 1 2\nw05 1 2 3\n", "vectors.txt:2 a word vector has 2 values, .* the line is broken"),
        (
            "5 3\nw01 1 2 3\nw05 1 2 3\n",
            "vectors.txt:1 the first line declares 5 words, but there are 2; is the file truncated",
        ),
        ("absent 7 8 9\n", "none of the 40 tokens"),
    ],
)
def test_files_of_vectors_that_are_broken(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(text)
    with pytest.raises(AlchemyError, match=message):
        Embedding(words(), dim=3, vectors=str(path))


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    path = folder(tmp_path, "bert")
    told = json.loads((path / "config.json").read_text())
    message = r"embeddings.LayerNorm.bias has shape \[16\] in the weights of .*bert', but \[8\] in config.json;"
    with pytest.raises(AlchemyError, match=message):
        Pretrained(str(path), options={"hidden_size": 8})
    (path / "config.json").write_text(json.dumps(told | {"hidden_size": 8}))
    with pytest.raises(AlchemyError, match=message + ".* use config.json and weights of the same model"):
        Pretrained(str(path))


def test_weights_of_another_architecture_are_told(tmp_path: Path) -> None:
    path, other = folder(tmp_path, "bert"), folder(tmp_path, "albert")
    with pytest.raises(
        AlchemyError, match=r"config.json the folder contains a 'bert' model, but kind = 'albert'; remove kind"
    ):
        Pretrained(str(path), kind="albert")
    shutil.copy(other / "model.safetensors", path)
    with pytest.raises(AlchemyError, match=r"has no weights for .* do they belong to a model other than 'bert'"):
        Pretrained(str(path))


SIZED: list[tuple[Any, list[str], list[str]]] = [
    (lambda **told: Embedding(words(), **told), ["dim"], ["dropout", "word_dropout"]),
    (lambda **told: Recurrent(words(), **told), ["dim", "hidden", "layers"], ["dropout", "word_dropout"]),
    (lambda **told: Transformer(words(), **told), ["dim", "heads", "layers", "inner", "max_length"], ["dropout"]),
    (lambda **told: NGrams(words(), **told), ["dim", "buckets"], ["dropout"]),
    (lambda **told: CNN(8, **told), ["filter_num"], []),
    (lambda **told: LSTM(8, **told), ["lstm_hidden_size", "lstm_layers"], ["lstm_dropout"]),
    (lambda **told: GRU(8, **told), ["gru_hidden_size", "gru_layers"], ["gru_dropout"]),
    (lambda **told: RCNN(8, **told), ["hidden", "layers"], ["dropout"]),
    (lambda **told: DPCNN(8, **told), ["filter_num"], ["dropout"]),
]


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        *((part, name, 0, "at least 1") for part, sizes, _ in SIZED for name in sizes),
        *((part, name, 1.5, "at most 1") for part, _, shares in SIZED for name in shares),
        (lambda **told: Attention(8, **told), "hidden", -1, "at least 0"),
        (lambda **told: Embedding(words(), **told), "bigrams", -1, "at least 0"),
    ],
)
def test_sizes_that_cannot_be(part: Any, name: str, value: Any, message: str) -> None:
    with pytest.raises(AlchemyError, match=f"{name} must be {message}, not {value}"):
        part(**{name: value})


def test_a_kernel_of_a_hub_is_not_fetched(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="'some/kernel' would download code"):
        Pretrained(str(folder(tmp_path, "bert")), options={"_attn_implementation": "some/kernel"})
