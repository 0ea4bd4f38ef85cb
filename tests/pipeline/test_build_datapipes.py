"""A list of tables becomes a chain of old-style and new-style pipes, or one clear error."""

from typing import Any

import pytest
from torch.utils.data import IterableDataset

from alchemy.config.tree import Origin, build_tree
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline, build_datapipes

SOURCE = {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [1, 2, 3]}
HERE = f"{__name__}."


@DataPipeline.register("OldAlias")
class OldPipe(ItrDataPipeline):
    def __init__(self, datapipe, factor, **kwargs):
        super().__init__()
        self.datapipe = datapipe
        self.factor = factor
        self.rest = kwargs

    def __iter__(self):
        for number in self.datapipe:
            yield number * self.factor


class Bare(ItrDataPipeline):
    def __init__(self):
        super().__init__()

    def __iter__(self):
        return iter(self.datapipe)


class Inherited(ItrDataPipeline):
    def __iter__(self):
        return iter(self.datapipe)


class Failing(ItrDataPipeline):
    def __init__(self, datapipe, **kwargs):
        raise ValueError("no vocabulary")


class Empty(ItrDataPipeline):
    pass


class EmptyList(LstDataPipeline):
    pass


class GivesIds(Inherited):
    gives = {"ids": "int64", "text": ""}


class TakesIds(Inherited):
    takes = {"ids": "int64"}


class TakesLabels(Inherited):
    takes = {"label": ""}


class TakesFloats(Inherited):
    takes = {"ids": "float32"}


class GivesRows(Inherited):
    gives = {"ids": "int64[T,3]"}


class TakesRow(Inherited):
    takes = {"ids": "int64[T]"}


@pytest.mark.parametrize("name", ["OldPipe", "OldAlias"])
def test_an_old_pipe_gets_its_whole_table(name):
    pipe = build_datapipes([SOURCE, {"type": HERE + name, "factor": 10, "own": "key"}])
    assert list(pipe) == [10, 20, 30]
    assert pipe.rest == {"type": HERE + name, "own": "key"}
    assert isinstance(pipe, IterableDataset)


@pytest.mark.parametrize("name", ["Bare", "Inherited"])
def test_a_pipe_without_a_constructor_of_its_own_reads_from_the_one_before(name):
    assert list(build_datapipes([SOURCE, {"type": HERE + name}])) == [1, 2, 3]


def test_the_seed_of_the_run_reaches_pipes_that_read_while_they_are_built():
    tables: list[Any] = [{**SOURCE, "datapipe": list(range(20))}, {"type": "alchemy.pipeline.itr.Shuffle"}]
    tables.append({"type": "alchemy.pipeline.lst.ItrToLst"})
    orders = []
    for seed in (1, 1, 2):
        with Run({"tag": "t", "seed": seed}):
            orders.append(list(build_datapipes(tables)))
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize(
    ("pipes", "message"),
    [
        ([], r"\[task.datasets.train\] 'pipes' must be a list of tables"),
        ("a.b", "'pipes' must be a list of tables"),
        ([{"datapipe": []}], r"\[task.datasets.train.pipes.0\] a pipe needs a 'type'"),
        (
            [SOURCE, {"type": "alchemy.pipeline.itr.Shufle"}],
            r"pipes.1\] .*no DataPipeline named 'Shufle'; did you mean 'Shuffle'",
        ),
        (
            [SOURCE, {"type": "alchemy.pipeline.itr.Batch", "batchsize": 3}],
            "Batch has no option 'batchsize'; did you mean 'batch_size'",
        ),
        (
            [SOURCE, {"type": "alchemy.pipeline.itr.Batch", "batch_size": 0}],
            "Batch: batch_size must be at least 1, not 0",
        ),
        ([SOURCE, {"type": "alchemy.pipeline.itr.Take"}], "Take needs 'n'"),
        (
            [SOURCE, {"type": HERE + "Failing"}],
            r"pipes.1\] .*Failing could not be built at .*py:\d+: ValueError: no voc",
        ),
        ([{"type": "alchemy.pipeline.itr.Shuffle"}], "Shuffle needs 'datapipe'"),
        ([{**SOURCE, "datapipe": []}], "SequenceWrapper: datapipe must not be empty"),
        (
            [{**SOURCE, "datapipe": "a.txt"}],
            "SequenceWrapper: datapipe must be a list of values, not the string 'a.txt'",
        ),
        ([SOURCE, {"type": "torch.nn.Linear"}], "'torch.nn.Linear' is not a DataPipeline"),
    ],
)
def test_a_wrong_chain_is_one_error_that_names_the_pipe(pipes, message):
    with pytest.raises(AlchemyError, match=message):
        build_datapipes(pipes, section="task.datasets.train")


def test_the_place_in_the_file_is_named():
    table = build_tree({"type": HERE + "Failing", "datapipe": [1]}, Origin("train.toml", 41))
    with pytest.raises(AlchemyError, match=r"^train.toml:41 \[pipes.0\] .*Failing could not be built"):
        build_datapipes([table])


def test_keys_that_nobody_uses_are_told(capture_log):
    build_datapipes([SOURCE, {"type": HERE + "Inherited", "color": "red"}])
    assert "Inherited does not use 'color'" in capture_log.text


def test_declared_fields_are_checked_from_pipe_to_pipe():
    shuffle = {"type": "alchemy.pipeline.itr.Shuffle"}
    gives: list[Any] = [SOURCE, {"type": HERE + "GivesIds"}, shuffle]
    assert build_datapipes([*gives, {"type": HERE + "TakesIds"}])
    assert build_datapipes([SOURCE, {"type": HERE + "TakesLabels"}])
    assert build_datapipes([*gives, {"type": HERE + "Inherited"}, {"type": HERE + "TakesLabels"}])
    with pytest.raises(
        AlchemyError, match=r"pipes.3\] .*expects the field 'label', but receives ids: int64, text: any"
    ):
        build_datapipes([*gives, {"type": HERE + "TakesLabels"}])
    with pytest.raises(AlchemyError, match="expects 'ids' as float32"):
        build_datapipes([*gives, {"type": HERE + "TakesFloats"}])


def test_declared_shapes_are_checked_from_pipe_to_pipe():
    assert build_datapipes([SOURCE, {"type": HERE + "GivesIds"}, {"type": HERE + "TakesRow"}])  # it declares no shape
    assert build_datapipes([SOURCE, {"type": HERE + "GivesRows"}, {"type": HERE + "TakesIds"}])
    with pytest.raises(AlchemyError, match=r"expects 'ids' as int64\[T\], but receives ids: int64\[T,3\]"):
        build_datapipes([SOURCE, {"type": HERE + "GivesRows"}, {"type": HERE + "TakesRow"}])


@pytest.mark.parametrize(
    ("act", "missing"),
    [
        (lambda: iter(Empty()), "__iter__"),
        (lambda: EmptyList()[0], "__getitem__"),
        (lambda: len(EmptyList()), "__len__"),
    ],
)
def test_a_pipe_that_lacks_a_method_says_which(act, missing):
    with pytest.raises(NotImplementedError, match=rf"Empty\w* must define {missing}"):
        act()
