"""Files of word vectors: a word and its numbers on each line, as word2vec, GloVe and fastText write them."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from loguru import logger
from torch import Tensor

from alchemy.data.files import check_file, read_lines
from alchemy.errors import AlchemyError
from alchemy.text import Tokenizer


def read_vectors(path: str | Path, tokenizer: Tokenizer, table_VD: Tensor) -> int:
    """Puts the vectors of the words that the tokenizer knows into their rows, and tells how many there were.

    A first line with two whole numbers, as word2vec writes it, tells how many words there are, and how many numbers
    each has. Other rows stay as they are.
    """
    dim = table_VD.shape[1]
    found: set[int] = set()
    told = number = 0
    for number, line in read_lines(check_file(path)):
        cells = line.rstrip().split(" ")
        if number == 1 and len(cells) == 2 and all(map(str.isdecimal, cells)):
            told = int(cells[0])
            _check_size(int(cells[1]), dim, f"{path}:1")
            continue
        row = tokenizer.id_of(cells[0])
        if row is None or row in found:
            continue
        table_VD[row] = torch.tensor(_numbers(cells[1:], dim, f"{path}:{number}", known=bool(told or found)))
        found.add(row)
    if number - 1 < told:
        hint = "was it cut while it was copied? get it anew, or mend its first line"
        raise AlchemyError(
            f"the first line tells of {told} words, and there are {number - 1}", where=f"{path}:1", hint=hint
        )
    if not found:
        hint = "are they of another language, or for words where these are characters?"
        raise AlchemyError(f"none of the {tokenizer.size} symbols has a vector in {path}", hint=hint)
    logger.info("{} of {} symbols have a vector in {}", len(found), tokenizer.size, path)
    return len(found)


def _numbers(cells: list[str], dim: int, where: str, known: bool) -> list[float]:
    """The numbers of a line; `known` says that others had as many as are wanted: then it is the line that is wrong."""
    try:
        numbers = [float(cell) for cell in cells]
    except ValueError as error:
        raise AlchemyError(f"a word vector has something that is no number: {error}", where=where) from error
    if known and len(numbers) != dim:
        hint = "the line is broken, as the last of a file that was cut is"
        raise AlchemyError(f"a word vector has {len(numbers)} numbers, and those before {dim}", where=where, hint=hint)
    _check_size(len(numbers), dim, where)
    if not all(map(math.isfinite, numbers)):
        hint = "take the line out: its word then begins with random numbers"
        raise AlchemyError("a word vector has a number that is not finite", where=where, hint=hint)
    return numbers


def _check_size(size: int, dim: int, where: str) -> None:
    if size != dim:
        raise AlchemyError(f"a word vector has {size} numbers", where=where, hint=f"set dim = {size}")
