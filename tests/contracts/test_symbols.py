"""The symbol table: members, globals, frames, and their visibility."""

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from alchemy import AlchemyModel, AlchemyTask, run, sym_tbl
from alchemy.context import Run, SymbolTbl, current_run, new_scope
from alchemy.errors import KeyExists, MissingKey, NoFrame
from alchemy.pipeline import BeginEpochPipeline, SchedPipeline

CFG = {"tag": "symbols"}
MEMBERS = ["device_info", "device", "console", "model", "task", "optim", "train_sched", "record_dir", "ctime", "ret"]


@pytest.fixture
def table():
    with Run(CFG) as run:
        yield run.symbols


def test_members_are_empty_until_they_are_set(table):
    assert [getattr(table, name) for name in MEMBERS] == [None] * len(MEMBERS)
    assert table.cfg["tag"] == "symbols"
    assert table.registry.__name__ == "Registrable"
    assert not table.plugins


def test_members_of_the_table_are_those_of_the_run():
    with Run(CFG) as run:
        sym_tbl().model, run.task = "model", "task"
        assert (run.model, sym_tbl().task, sym_tbl().cfg) == ("model", "task", run.cfg)
        sym_tbl().own = 1  # type: ignore[attr-defined] # a project may keep its own name there
        assert sym_tbl().own == 1  # type: ignore[attr-defined]


def test_optimizer_is_optim(table):
    table.optim = "a"
    assert table.optimizer == "a"
    table.optimizer = "b"
    assert table.optim == "b"


def test_record_dir_is_member_and_global(table, tmp_path):
    assert table.try_get_global("record_dir") is None
    assert table.get_global("record_dir") is None
    table.record_dir = tmp_path
    assert table.get_global("record_dir") == table.record_dir == tmp_path


def test_globals_may_be_set_again(table):
    table.set_global("preds", 1)
    table.set_global("preds", 2)
    table.force_set_global("preds", 3)
    assert table.try_set_global("preds", 4) is False
    assert table.try_set_global("more", 5) is True
    assert (table.get_global("preds"), table.try_get_global("none"), table.try_get_global("none", 6)) == (3, None, 6)
    assert (table.pop_global("preds"), table.try_pop_global("preds"), table.try_pop_global("preds", 7)) == (3, None, 7)
    assert not table.contains_global("preds")
    assert table.contains_global("more")


def test_frames_refuse_what_exists(table):
    with new_scope():
        table.set("x", 1)
        with pytest.raises(KeyExists, match=r"'x' is already set to 1; overwrite it with force_set"):
            table.set("x", 2)
        assert table.try_set("x", 3) is False
        assert table.try_set("y", 4) is True
        table.force_set("x", 5)
        assert (table["x"], table.get("y"), "x" in table, "z" in table, table.try_get("z", 6)) == (5, 4, True, False, 6)
        assert (table.pop("x"), table.try_pop("x"), table.contains("x")) == (5, None, False)


@pytest.mark.parametrize("ask", ["get_global", "pop_global", "get", "pop", "__getitem__"])
def test_missing_key_says_what_is_there(table, ask):
    with new_scope():
        table.set("predictions", 1)
        table.set_global("predictions", 1)
        with pytest.raises(MissingKey, match=r"'prediction' is not set; .*predictions.*did you mean 'predictions'"):
            getattr(table, ask)("prediction")


def test_missing_key_is_a_key_error(table):
    with pytest.raises(KeyError, match="not set"):
        table.get_global("nothing")


def test_only_the_top_frame_is_seen(table):
    with new_scope():
        table["x"] = 1
        with new_scope() as inner:
            assert "x" not in inner
            inner["x"] = 2
        assert table["x"] == 1


@pytest.mark.parametrize("use", [lambda t: t.set("x", 1), lambda t: t.try_get("x"), lambda t: "x" in t])
def test_no_frame(table, use):
    with pytest.raises(NoFrame, match="no scope is open for local symbols; open one"):
        use(table)


def test_new_scope_decorates_with_and_without_brackets(table):
    @new_scope
    def bare():
        sym_tbl().set("x", 1)
        return sym_tbl().get("x")

    @new_scope()
    def called():
        sym_tbl().set("x", 2)
        return bare() + sym_tbl().get("x")

    assert called() + called() == 6  # nothing is left over from the first call


def test_a_frame_is_left_on_an_error(table):
    with pytest.raises(ZeroDivisionError, match="division"), new_scope():
        table["x"] = 1 / 0
    with pytest.raises(NoFrame, match="no scope"):
        table.get("x")


def test_reset_forgets_everything(table):
    table.set_global("a", 1)
    table.model = object()
    with new_scope():
        table.reset()
        with pytest.raises(NoFrame, match="no scope"):
            table.get("x")
    assert table.model is None
    assert not table.contains_global("a")


def test_between_runs_there_is_an_empty_table():
    assert type(sym_tbl()) is SymbolTbl
    assert sym_tbl().cfg is None
    assert sym_tbl().model is None
    with pytest.raises(MissingKey, match="no run is active; open one"):
        current_run()


def test_nested_runs_give_back_the_outer_one():
    with Run({"tag": "outer"}) as outer:
        outer.symbols.set_global("x", 1)
        with Run({"tag": "inner"}) as inner:
            assert sym_tbl() is inner.symbols
            assert not sym_tbl().contains_global("x")
        assert sym_tbl() is outer.symbols
        assert sym_tbl().get_global("x") == 1


def seen_in_a_thread():
    seen = []
    thread = threading.Thread(target=lambda: seen.append(sym_tbl()))
    thread.start()
    thread.join()
    return seen[0]


def test_a_bare_thread_sees_the_only_live_run(table):
    assert seen_in_a_thread() is table
    with Run({"tag": "second"}):
        assert seen_in_a_thread().cfg is None  # ambiguous: it may belong to either


def test_runs_in_two_threads_do_not_mix():
    meet = threading.Barrier(2, timeout=20)
    seen = {}

    def work(name):
        with Run({"tag": name}):
            sym_tbl().set_global("name", name)
            meet.wait()
            seen[name] = (sym_tbl().cfg["tag"], sym_tbl().get_global("name"))
            meet.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert seen == {"a": ("a", "a"), "b": ("b", "b")}


class Spy(IterableDataset):
    """Return what a loader worker sees of the symbol table."""

    def __iter__(self):
        yield [getattr(sym_tbl(), name) for name in (*MEMBERS, "cfg")]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_members_are_empty_in_a_loader_worker(table, method):
    table.model, table.task, table.optim, table.ret = nn.Linear(1, 1), "task", "optim", {}
    loader = DataLoader(Spy(), batch_size=None, num_workers=1, multiprocessing_context=method)
    assert next(iter(loader)) == [None] * (len(MEMBERS) + 1)
    assert table.task == "task"


WATCHED: list[weakref.ref[Any]] = []  # weak references to the parts of the run below


class Points(list):
    pass


class LineTask(AlchemyTask):
    def load_dataset(self, split, **kwargs):
        self._datasets[split] = (Points({"x": torch.tensor([i / 4.0])} for i in range(4)), {"batch_size": 2})


class LineModel(AlchemyModel):
    def __init__(self):
        super().__init__()
        self.model = nn.Linear(1, 1)

    def optim_params(self, **kwargs):
        return self.model.parameters()

    def forward(self, batch, needs_loss, requires_grad, **kwargs):
        loss = (self.model(batch["x"]) - 1).pow(2).mean()
        return {"loss": self.backward.backward(loss, requires_grad=requires_grad)}


@SchedPipeline.register()
class Watch(BeginEpochPipeline):
    def __call__(self, **kwargs):
        parts = [sym_tbl().model, sym_tbl().model.model, sym_tbl().task, sym_tbl().task.dataset("train")[0]]
        WATCHED.extend(weakref.ref(part) for part in [*parts, sym_tbl().optim, sym_tbl().train_sched])
        sym_tbl().set_global("kept", sym_tbl().model)  # values stored by a project are released too
        return kwargs


def test_run_frees_model_task_and_data():
    cfg = {
        "tag": "freed",
        "runner": "alchemy.runner.Trainer",
        "task": {"type": f"{__name__}.LineTask", "datasets": {"train": {}}},
        "model": {"type": f"{__name__}.LineModel"},
        "optim": {"type": "alchemy.optim.AdamW", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 1, "pipes": [{"type": f"{__name__}.Watch"}]},
    }
    result = run([cfg], device=[-1], no_file=True)[0]
    assert result.exception is None, result.exception
    gc.collect()
    assert len(WATCHED) == 6
    assert [ref() for ref in WATCHED] == [None] * 6
    assert sym_tbl().model is None
