"""Fault 8: errors without context, such as a bare `KeyError: 'optim'`."""

import pytest

from alchemy import AlchemyModel, AlchemyTask, run, sym_tbl
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, MissingKey
from alchemy.model import BackwardHandler
from alchemy.pipeline import EvalPipeline, ItrDataPipeline, OutputPipeline, SchedPipeline
from alchemy.runner import AlchemyRunner


@pytest.mark.parametrize("section", ["task", "model", "optim", "sched"])
def test_a_missing_section_is_named(section):
    import line_parts

    cfg = line_parts.config()
    del cfg[section]
    result = run([cfg], device=[-1])[0]
    assert isinstance(result.exception, AlchemyError)
    assert f"[{section}]" in str(result.exception)


@pytest.mark.parametrize("section", ["task", "model", "optim", "sched"])
def test_a_missing_type_is_named(section):
    import line_parts

    cfg = line_parts.config()
    del cfg[section]["type"]
    result = run([cfg], device=[-1])[0]
    assert isinstance(result.exception, AlchemyError)
    assert section in str(result.exception)
    assert "type" in str(result.exception)


def test_missing_key_is_never_empty():
    with Run({"tag": "x"}), pytest.raises(MissingKey, match="global 'pbar' is not set; available:"):
        sym_tbl().get_global("pbar")


@pytest.mark.parametrize("ty", ["", "Tagger", "..", "no.such.Module", "alchemy.optim.Nothing", 7])
def test_a_type_that_is_no_import_path_says_what_is_expected(ty):
    with pytest.raises(AlchemyError, match=r"no module|import path|no AlchemyModel|must be a string"):
        AlchemyModel.resolve_registered_module(ty)


@pytest.mark.parametrize(
    "call",
    [
        lambda: next(iter(ItrDataPipeline())),
        lambda: OutputPipeline()({}, {}),
        lambda: EvalPipeline()("dev"),
        lambda: SchedPipeline()(),
        lambda: AlchemyModel().forward({}),
        lambda: BackwardHandler().backward(0),  # type: ignore[arg-type]
        lambda: AlchemyRunner(current_run().cfg, {"device": "cpu"}).run(),
    ],
)
def test_not_implemented_names_what_must_be_defined(call):
    with Run({"tag": "x"}), pytest.raises((NotImplementedError, AlchemyError), match="must define"):
        call()


def test_a_missing_split_is_named():
    with Run({"tag": "x"}), pytest.raises(AlchemyError, match=r"no dataset for the split 'dev'; loaded splits: none"):
        AlchemyTask().dataset("dev")
