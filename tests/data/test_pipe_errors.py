"""A data error names the pipe that raised it, the line of the project's code, and the sample."""

import re
from typing import Any

import pytest

from alchemy.data.loader import get_dataloader
from alchemy.data.peek import peek
from alchemy.data.pipe_errors import origin_of
from alchemy.errors import AlchemyError
from alchemy.pipeline import ItrDataPipeline, LstDataPipeline, build_datapipes
from alchemy.pipeline.itr import Batch, Map, SplitByWorker
from alchemy.pipeline.lst import ItrToLst, SequenceWrapper

LABELS = {"red": 0, "blue": 1}
HERE = re.escape(f"{__name__}.")


class ReadPoint(ItrDataPipeline):
    def __iter__(self):
        for number, row in enumerate(self.datapipe):
            yield number, LABELS[row]  # the failing line


class Indexed(LstDataPipeline):
    def __len__(self):
        return len(self.datapipe)

    def __getitem__(self, index):
        return label_of(self.datapipe[index])


def label_of(word):
    return LABELS[word]


def collate(samples):
    return [LABELS[sample] for sample in samples]


LINE = ReadPoint.__iter__.__code__.co_firstlineno + 2
WORDS = SequenceWrapper(["red", "purple", "blue"])


def test_a_pipe_that_reads_while_it_is_built_is_not_to_blame():
    tables: list[Any] = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": ["red", "purple"]},
        {"type": f"{__name__}.ReadPoint"},
        {"type": "alchemy.pipeline.itr.Take", "n": 9},
        {"type": "alchemy.pipeline.lst.ItrToLst"},
    ]
    text = (
        rf"^\[task.datasets.train.pipes.1\] {HERE}ReadPoint failed at .*test_pipe_errors.py:{LINE}: KeyError: 'purple'"
    )
    with pytest.raises(AlchemyError, match=rf"{text}; row = 'purple'$") as info:
        build_datapipes(tables, section="task.datasets.train")
    assert isinstance(info.value.__cause__, KeyError)


def test_our_own_errors_get_the_place_of_their_pipe():
    tables: list[Any] = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [{"x": 1}]},
        {"type": "alchemy.pipeline.itr.Fields", "keep": ["y"]},
        {"type": "alchemy.pipeline.lst.ItrToLst"},
    ]
    with pytest.raises(AlchemyError, match=r"^\[pipes.1\] .*itr.Fields: a sample has no field 'y'"):
        build_datapipes(tables)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_names_pipe_and_line_with_workers_too(workers):
    tables: list[Any] = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": ["red", "purple"]},
        {"type": "alchemy.pipeline.itr.SplitByWorker"},
        {"type": f"{__name__}.ReadPoint"},
    ]
    loader = get_dataloader(build_datapipes(tables), batch_size=1, num_workers=workers)
    text = rf"^\[pipes.2\] {HERE}ReadPoint failed at .*test_pipe_errors.py:{LINE}: KeyError: 'purple'"
    with pytest.raises(AlchemyError, match=text):
        list(loader)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("pipe", "options", "message"),
    [
        (Indexed(WORDS), {}, rf"^{HERE}Indexed failed at .*test_pipe_errors.py:\d+: KeyError: 'purple'"),
        (WORDS, {"collate_fn": collate, "batch_size": 2}, r"^loading a batch failed at .*:\d+: KeyError: 'purple'"),
        (Map(WORDS, int), {}, r"^alchemy.pipeline.itr.Map failed: ValueError: invalid literal for int"),
        (Batch(SplitByWorker(Map(WORDS, label_of)), 2), {}, r"^alchemy.pipeline.itr.Map failed at .*: KeyError"),
    ],
)
def test_functions_and_lists_are_named_as_well(pipe, options, message, workers):
    with pytest.raises(AlchemyError, match=message):
        list(get_dataloader(pipe, num_workers=workers, **options))


def test_a_peek_tells_the_line_and_a_long_sample_is_cut():
    stages = peek(ReadPoint(SequenceWrapper(["red", "x" * 900])))
    assert f"test_pipe_errors.py:{LINE}: KeyError" in stages[-1].error
    assert stages[-1].error.endswith("x...")
    with pytest.raises(KeyError, match="purple") as info:
        ItrToLst(ReadPoint(WORDS))
    assert origin_of(info.value).endswith(f"test_pipe_errors.py:{LINE}")
