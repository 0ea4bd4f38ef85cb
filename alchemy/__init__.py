"""alchemy: write a module, edit a TOML file, get an experiment you can trust.

Importing the package is fast: names are loaded on first use, and torch is imported only by names that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.analysis.canvas import Canvas as Canvas
    from alchemy.analysis.history import History as History
    from alchemy.analysis.record_set import records as records  # what calling the package `records` returns
    from alchemy.config.load import prepare_cfg as prepare_cfg
    from alchemy.context import Run as Run
    from alchemy.context import current_run as current_run
    from alchemy.context import new_scope as new_scope
    from alchemy.context import sym_tbl as sym_tbl
    from alchemy.model import AlchemyModel as AlchemyModel
    from alchemy.optim import AlchemyOptimizer as AlchemyOptimizer
    from alchemy.predictor import load as load
    from alchemy.result import RunResult as RunResult
    from alchemy.resuming import resume as resume
    from alchemy.runner import AlchemyRunner as AlchemyRunner
    from alchemy.runner import evaluate as evaluate
    from alchemy.runner import run as run
    from alchemy.runner import run_task as run_task
    from alchemy.sched import AlchemyTrainScheduler as AlchemyTrainScheduler
    from alchemy.task import AlchemyTask as AlchemyTask

__version__ = "1.0.0.dev0"

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Canvas": "analysis.canvas",
        "History": "analysis.history",
        "prepare_cfg": "config.load",
        "Run": "context",
        "current_run": "context",
        "new_scope": "context",
        "sym_tbl": "context",
        "AlchemyModel": "model",
        "AlchemyOptimizer": "optim",
        "load": "predictor",
        "records": "records",
        "RunResult": "result",
        "resume": "resuming",
        "AlchemyRunner": "runner",
        "evaluate": "runner",
        "run": "runner",
        "run_task": "runner",
        "AlchemyTrainScheduler": "sched",
        "AlchemyTask": "task",
    },
)
