"""The config tables and keys that alchemy recognizes, what each runner requires, and what each part receives."""

from __future__ import annotations

# top-level keys with a single value, and the annotation that the value must match
SETTINGS = {"tag": "str", "runner": "str", "seed": "int", "log_every": "Annotated[int, Ge(1)]"}

# top-level tables: the kind of part ("" for a table of lists of parts), and whether `type` is required
SECTIONS = {
    "task": ("task", True),
    "model": ("model", True),
    "optim": ("optim", True),
    "sched": ("sched", True),
    "backward": ("backward", True),
    "criterion": ("loss", False),
    "stop": ("", False),
    "checkpoint": ("checkpoint", True),
    "precision": ("precision", True),
    "ema": ("average", True),
    "ddp": ("ddp", True),
    "capture": ("capture", True),
}

# the part used when a table has no `type`
DEFAULT_TYPES = {
    "backward": "alchemy.update.GradientUpdater",
    "checkpoint": "alchemy.checkpoint.keeper.Checkpoints",
    "precision": "alchemy.precision.Precision",
    "ema": "alchemy.average.EMA",
    "ddp": "alchemy.launch.process_group.Sharing",
    "capture": "alchemy.capture.Capture",
}

# lists of parts: path and kind
LISTS = {
    "plugins": "plugin",
    "task.outputpipes": "output pipe",
    "task.evalpipes": "eval pipe",
    "sched.pipes": "sched pipe",
    "stop.any": "stop rule",
    "stop.all": "stop rule",
}

# modules with an alias
MODULES = {"alchemy.scheduler": "alchemy.sched"}

# keys used while loading, which are never reported as unknown
LOADING = ("base", "variant", "dynamic")

# tables that other commands read; they have no effect on a run
OTHER_COMMANDS = {"sweep": "what `alchemy sweep` searches"}

# settings of a single run, which belong on the command line, and the option that sets each
RUN_SETTINGS = {
    "device": "--device N",
    "no_file": "--no-file",
    "desc": "--desc TEXT",
    "debug": "--debug",
    "user_dir": "--user-dir DIR",
    "force_mp": "--force-mp",
    "task_per_device": "--task-per-device N",
}

TOP_LEVEL = (*SETTINGS, *SECTIONS, "plugins", *LOADING, *OTHER_COMMANDS)

# what each runner requires: tables, and the split of task.datasets that it reads
NEEDS = {
    "Trainer": (("task", "model", "optim", "sched"), "train"),
    "Tester": (("task", "model"), "test"),
    "InferenceRunner": (("task", "model"), "inference"),
}
RUNNER_NAMES = {
    "Trainer": ("Trainer", "AlchemyTrainer", "AccelerateTrainer"),
    "Tester": ("Tester", "ALchemyTester", "AlchemyTester"),
    "InferenceRunner": ("InferenceRunner", "AlchemyInferenceRunner"),
}

# keys of a part's table that are not passed to its constructor, and arguments that do not come from the config
NOT_PASSED = {"task": ("datasets", "outputpipes", "evalpipes"), "sched": ("pipes",)}
GIVEN = {
    "optim": ("params",),
    "data pipe": ("datapipe",),
    "runner": ("cfg", "device_info"),
    "checkpoint": ("state_dir",),
    "encoder": ("tokenizer",),
    "head": ("inputs",),
    "network": ("source_size", "target_size"),
}

# default type of the table at this key of this part (or a subclass); True: default type of each of its inner tables
INNER_TYPES = {
    ("alchemy.data.collate.Pad", "fields"): ("alchemy.data.columns.Padded", True),
    ("alchemy.tasks.translation.Translation", "limits"): ("alchemy.generate.Limits", False),
}

# keys whose value is the import path of a function or class
BUILT_BY_LOADER = ("collate_fn", "sampler", "batch_sampler", "worker_init_fn")
NAMES_CODE = ("fn", *BUILT_BY_LOADER)
GIVEN_BY_LOADER = ("data_source", "dataset", "generator", "seed")  # passed by the loader unless set in the table
SAMPLERS = ("sampler", "batch_sampler")  # must be iterable

# additional keys of a named optimizer, `[optim.<name>]`, and their annotations
NAMED_OPTIM = {"params": "str | list[str]"}

# value ranges for optimizers that are not part of alchemy
RATES = {
    "lr": "Annotated[float, Ge(0), Finite()]",
    "trf_lr": "Annotated[float, Ge(0), Finite()]",
    "max_grad_norm": "Annotated[float, Gt(0)] | None",
    "weight_decay": "Annotated[float, Ge(0), Finite()]",
    "eps": "Annotated[float, Ge(0), Finite()] | list",
    "betas": "list[Annotated[float, Ge(0), Lt(1)]]",
}

# keys that project code may read from a table by convention, regardless of what the part declares
BY_CONVENTION = {
    "model": ("model_path",),
    "optim": ("lr", "weight_decay", "betas", "eps", "amsgrad", "max_grad_norm", "trf_lr"),
    "sched": ("epochs", "num_warmup_steps", "num_training_steps", "factor"),
    "backward": ("period",),
}
