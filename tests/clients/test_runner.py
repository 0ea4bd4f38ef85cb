"""A custom runner with its own loop, using the calls of the contract in order."""

import json
from typing import Any

from rich.progress import Progress

from alchemy import AlchemyModel, AlchemyOptimizer, AlchemyRunner, AlchemyTask, AlchemyTrainScheduler, run, sym_tbl
from alchemy.runner import evaluate, get_dataloader
from alchemy.util.extention.rich import full_columns
from tests import toy


@AlchemyRunner.register("OwnLoop")
class OwnLoopRunner(AlchemyRunner):
    def __init__(self, cfg, device_info, **kwargs):
        super().__init__(cfg, device_info, **kwargs)
        sym_tbl().set_global("calls", [])

    def run(self):
        table: Any = sym_tbl()
        table.task = AlchemyTask.from_registry(table.cfg["task"]["type"])
        table.model = AlchemyModel.from_registry(table.cfg["model"]["type"])
        table.model.to(table.device)
        for split, dataset in table.cfg["task"]["datasets"].items():
            table.task.load_dataset(split=split, **dataset)
        table.optim = AlchemyOptimizer.from_registry(table.cfg["optim"]["type"])
        table.train_sched = AlchemyTrainScheduler.from_registry(table.cfg["sched"]["type"])
        for epoch in table.train_sched:
            dataset, options = table.task.dataset("train")
            with Progress(*full_columns(), console=table.console, disable=table.console is None) as pbar:
                table.set_global("pbar", pbar)
                for batch in get_dataloader(dataset, **options):
                    step, _ = table.train_sched.begin_train_step(batch)
                    table.model.train()
                    text, outputs = table.task.step(batch)
                    table.train_sched.end_train_step(outputs)
                    table.get_global("calls").append((epoch, step, isinstance(text, str)))
                    table.try_set_global(f"first{epoch}", batch["x"].flatten().tolist())
                table.pop_global("pbar")
            table.train_sched.end_train_epoch()
        firsts = [table.get_global(f"first{epoch}") for epoch in range(table.train_sched.epochs)]
        table.ret = {"calls": table.get_global("calls"), "firsts": firsts, **evaluate("dev")}


def test_a_loop_of_its_own(tmp_path):
    cfg = toy.config(
        tmp_path,
        runner=f"{__name__}.OwnLoop",
        model={"type": "tests.toy.OldLine"},
        optim={"type": "alchemy.optim.AdamW", "lr": 0.3},
        sched={"type": "alchemy.sched.LineWarmup", "epochs": 3, "num_warmup_steps": 2},
    )
    result = run([cfg], device=[-1])[0]
    assert result.exception is None, result.exception
    assert result.ret["calls"] == [(step // 4, step, True) for step in range(12)]
    assert result.ret["loss"] < 1.5
    assert len({tuple(first) for first in result.ret["firsts"]}) == 3  # each epoch has a different order
    assert result.ret["score"] > 0  # the evaluation pipes of the config were called
    rows = [json.loads(line)["values"] for line in (result.record_dir / "metrics.jsonl").read_text().splitlines()]
    assert any("dev/loss" in row for row in rows)
