"""Files of word vectors: a word and its numbers on each line, as word2vec, GloVe and fastText write them."""

from __future__ import annotations

from pathlib import Path

import torch
from loguru import logger
from torch import Tensor

from alchemy.data.files import check_file, read_lines
from alchemy.errors import AlchemyError
from alchemy.text import Tokenizer


def read_vectors(path: str | Path, tokenizer: Tokenizer, table_VD: Tensor) -> int:
    """Puts the vectors of the words that the tokenizer knows into their rows, and tells how many there were.

    A first line with two numbers, as word2vec writes it, is passed over. Other rows stay as they are.
    """
    dim, found = table_VD.shape[1], set()
    for number, line in read_lines(check_file(path)):
        cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 2:
            continue
        row = tokenizer.id_of(cells[0])
        if row is None or row in found:
            continue
        table_VD[row] = torch.tensor(_numbers(cells[1:], dim, f"{path}:{number}"))
        found.add(row)
    if not found:
        hint = "are they of another language, or for words where these are characters?"
        raise AlchemyError(f"none of the {tokenizer.size} symbols has a vector in {path}", hint=hint)
    logger.info("{} of {} symbols have a vector in {}", len(found), tokenizer.size, path)
    return len(found)


def _numbers(cells: list[str], dim: int, where: str) -> list[float]:
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError as error:
        raise AlchemyError(f"a word vector has something that is no number: {error}", where=where) from error
    if len(numbers) != dim:
        raise AlchemyError(f"a word vector has {len(numbers)} numbers", where=where, hint=f"set dim = {len(numbers)}")
    return numbers
