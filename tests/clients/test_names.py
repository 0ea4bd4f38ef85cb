"""Every name that existing projects import exists, and accepts the parameters they pass."""

import functools
import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

from alchemy.config.part_source import Part, look
from alchemy.registry import resolve

# module -> names, with the required parameters, in order if they are positional
NAMES = {
    "alchemy": [
        "sym_tbl",
        "new_scope",
        "prepare_cfg",
        "run",
        "run_task",
        "RunResult",
        "AlchemyModel",
        "AlchemyTask",
        "AlchemyTrainScheduler",
        "AlchemyOptimizer",
        "AlchemyRunner",
        "prepare_cfg(cfg)",
        "AlchemyModel.save(path,model)",
        "AlchemyTask.max_positions",
    ],
    "alchemy.runner": [
        "Trainer",
        "Tester",
        "InferenceRunner",
        "AlchemyTrainer",
        "ALchemyTester",
        "AlchemyInferenceRunner",
        "AlchemyRunner",
        "RunResult",
        "evaluate(split,needs_loss)",
        "seed_worker(worker_id)",
        "get_dataloader(dataset,seed)",
    ],
    "alchemy.plugins": [
        "BasicSetup",
        "FileLogger(log_dir,subdirs,create_readme,backup_cfg)",
        "Backup(paths,ignore)",
        "TensorboardLogger(varname)",
        "Seeding(seed,use_deterministic_algorithms)",
        "DisplayRunningInfo",
        "AlchemyPlugin",
    ],
    "alchemy.web.plugins": ["MailOnFinish(send_ok)"],
    "alchemy.pipeline": [
        "DataPipeline",
        "DataPipeline.require_single_source",
        "ItrDataPipeline",
        "LstDataPipeline",
        "OutputPipeline",
        "EvalPipeline",
        "SchedPipeline",
        "BeginEpochPipeline",
        "EndEpochPipeline",
        "BeginStepPipeline",
        "EndStepPipeline",
        "Batch",
    ],
    "alchemy.pipeline.itr": [
        "Batch(batch_size,drop_last)",
        "Shuffle(buffer_size)",
        "SplitByWorker",
        "WithLength(length)",
        "RepeatIter",
    ],
    "alchemy.pipeline.lst": ["ItrToLst(is_sized)", "SequenceWrapper(datapipe)"],
    "alchemy.pipeline.output": ["Collect(varname)", "SaveAppend(filename,step_tag)"],
    "alchemy.pipeline.sched": [
        "InitEvalBEPipeline(split,needs_loss)",
        "EvalAtStartBEPipeline(split,needs_loss)",
        "EndEvalEEPipeline(split,needs_loss)",
        "EvalAtFinishEEPipeline(split,needs_loss)",
        "EvalStepESPipeline(period,split,needs_loss)",
        "EvalESPipeline(period,split,needs_loss)",
        "EvalEpochEEPipeline(period,split,needs_loss)",
        "EvalEEPipeline(period,split,needs_loss)",
        "SetRequiresGradBSPipeline(step,requires_grad,mode)",
    ],
    "alchemy.sched": ["AlchemyTrainScheduler", "LineWarmup", "Noam", "NoamScheduler"],
    "alchemy.scheduler": ["AlchemyTrainScheduler", "LineWarmup", "Noam", "NoamScheduler"],
    "alchemy.optim": ["AlchemyOptimizer", "AdamW", "HFAdamW"],
    "alchemy.model": ["AlchemyModel", "BackwardHandler", "DefaultBackwardHandler(period)"],
    "alchemy.task": ["AlchemyTask", "DefaultTask"],
    "alchemy.registry": ["Registrable"],
    "alchemy.util": [
        "batch_to_device(batch,device)",
        "filter_optional_cfg(cfg,optional_keys,level)",
        "merge_max_position_constraints",
        "new_huggingface_model(config)",
        "warn_unused_kwargs(kwargs,called_by,level)",
        "line_count(path)",
        "line_count(file)",
    ],
    "alchemy.util.sym": ["sym_tbl", "SymbolTbl", "MissingKey", "NoFrame", "new_scope"],
    "alchemy.util.optim": ["prepare_trf_based_model_params(model,trf,weight_decay,trf_lr)"],
    "alchemy.util.json": ["NpJsonEncoder"],
    "alchemy.util.extention.rich": [
        "full_columns",
        "no_total_columns",
        "CompletedColumn",
        "get_default_columns",
        "ProgressWOTotal",
    ],
    "alchemy.util.device": [
        *(f"{name}(preferred_devices,wait_time)" for name in ("alloc", "alloc1", "alloc_cuda")),
        "check_installed(package_name)",
    ],
    "alchemy.util.alloc_gpu": ["alloc_cuda(preferred_devices,wait_time)"],
    "alchemy.util.collate_fn": [
        "CollateFn",
        "DefaultCollateFn",
        "DefaultCollateFn.padded_stack_tensor(tensors,padding)",
        "DefaultCollateFn.extend_tensor(tensor,extended_shape,fill)",
    ],
    "alchemy.util.inference.nlp": ["AlchemyNLP(checkpt,device_info,bsz,cfg)"],
    "alchemy.util.ddp.accelerate": [
        prefix + name
        for prefix in ("", "Accelerate")
        for name in [
            "Trainer",
            "BasicSetup",
            "Sharding",
            "HFAdamW",
            "Backward",
            "EvalESPipeline(period,split,needs_loss)",
            "SaveModelMixin",
        ]
    ]
    + ["BackwardHandle", "AccelerateDDPBackwardHandle"],
}
# `type` in a config -> the base it is resolved for
TYPES = {
    "alchemy.task.Default": "alchemy.task.AlchemyTask",
    "alchemy.model.Default": "alchemy.model.BackwardHandler",
    "alchemy.util.collate_fn.Default": "alchemy.data.collate.CollateFn",
    "alchemy.pipeline.itr.Sample": "alchemy.pipeline.DataPipeline",
    "alchemy.util.ddp.accelerate.BackwardHandle": "alchemy.model.BackwardHandler",
    "alchemy.util.ddp.accelerate.EvalStepESPipeline": "alchemy.pipeline.SchedPipeline",
}
DEFAULTS: dict[str, Any] = {
    "alchemy.plugins.FileLogger": {"subdirs": [], "create_readme": True, "backup_cfg": True},
    "alchemy.plugins.Backup": {"ignore": []},
    "alchemy.plugins.TensorboardLogger": {"varname": "summary_writer"},
    "alchemy.plugins.Seeding": {"use_deterministic_algorithms": False},
    "alchemy.web.plugins.MailOnFinish": {"send_ok": True},
    "alchemy.runner.get_dataloader": {"seed": 0},
    "alchemy.runner.evaluate": {"split": "dev", "needs_loss": True},
    "alchemy.pipeline.itr.Batch": {"batch_size": 1, "drop_last": False},
    "alchemy.pipeline.itr.Shuffle": {"buffer_size": 1000},
    "alchemy.pipeline.output.SaveAppend": {"step_tag": True},
    "alchemy.pipeline.sched.EvalStepESPipeline": {"split": "dev", "needs_loss": True},
    "alchemy.model.DefaultBackwardHandler": {"period": 1},
    "alchemy.util.filter_optional_cfg": {"level": "WARNING"},
    "alchemy.util.warn_unused_kwargs": {"called_by": None},
    "alchemy.util.optim.prepare_trf_based_model_params": {"weight_decay": 1e-2, "trf_lr": 2e-5},
    "alchemy.util.inference.nlp.AlchemyNLP": {"bsz": 1, "cfg": None},
}
RUN = ["cfgs", "device", "user_dir", "desc", "debug", "no_file", "force_mp", "task_per_device"]


@pytest.mark.parametrize("name", [f"{module}:{name}" for module, names in NAMES.items() for name in names])
def test_name_resolves_with_its_parameters(name):
    module, _, signature = name.partition(":")
    attribute, _, wanted = signature.partition("(")
    found: Any = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    parameters = inspect.signature(found).parameters if wanted else {}
    for parameter in filter(None, wanted.rstrip(")").split(",")):
        assert parameter in parameters
    for parameter, default in DEFAULTS.get(f"{module}.{attribute}", {}).items():
        held = parameters[parameter].default
        assert (list(held) if isinstance(default, list) else held) == default


@pytest.mark.parametrize("name", TYPES)
def test_type_resolves(name):
    base: Any = resolve(TYPES[name])
    assert issubclass(base.resolve_registered_module(name), base)
    part = look(name)  # the shallow check, which imports nothing, finds it too
    assert isinstance(part, Part), part


@pytest.mark.parametrize(("old", "new"), [
    ("InitEvalBEPipeline", "EvalAtStartBEPipeline"),
    ("EndEvalEEPipeline", "EvalAtFinishEEPipeline"),
    ("EvalStepESPipeline", "EvalESPipeline"),
    ("EvalEpochEEPipeline", "EvalEEPipeline"),
])  # fmt: skip
def test_both_generations_of_names_are_one_class(old, new):
    from alchemy.pipeline import SchedPipeline

    classes = {SchedPipeline.resolve_registered_module(f"alchemy.pipeline.sched.{name}") for name in (old, new)}
    assert len(classes) == 1


def test_scheduler_is_sched():
    import alchemy.sched
    import alchemy.scheduler

    for name in NAMES["alchemy.sched"]:
        assert getattr(alchemy.sched, name) is getattr(alchemy.scheduler, name)


def test_run_is_a_function_with_the_agreed_order_of_parameters():
    import alchemy
    import alchemy.runner  # must not replace the function by a module

    assert inspect.isfunction(alchemy.run)
    assert list(inspect.signature(alchemy.run).parameters)[: len(RUN)] == RUN


@pytest.mark.parametrize(
    "module", ["alchemy", "alchemy.util", "alchemy.util.sym", "alchemy.web.plugins", "alchemy.registry"]
)
def test_import_without_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
