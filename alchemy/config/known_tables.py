"""The words of a config that alchemy knows: its tables, who needs which, and what is passed to whom."""

from __future__ import annotations

# top-level keys that are single values, with the annotation that they must fit
SETTINGS = {"tag": "str", "runner": "str", "seed": "int", "log_every": "Annotated[int, Ge(1)]"}

# top-level tables that are parts: kind, and whether they must say their `type`; without a kind, one that holds lists
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
}

# the part that a table without a `type` means
DEFAULT_TYPES = {
    "backward": "alchemy.update.GradientUpdater",
    "checkpoint": "alchemy.checkpoint.keeper.Checkpoints",
    "precision": "alchemy.precision.Precision",
    "ema": "alchemy.average.EMA",
    "ddp": "alchemy.launch.process_group.Sharing",
}

# lists of parts: where they stand and of which kind they are
LISTS = {
    "plugins": "plugin",
    "task.outputpipes": "output pipe",
    "task.evalpipes": "eval pipe",
    "sched.pipes": "sched pipe",
    "stop.any": "stop rule",
    "stop.all": "stop rule",
}

# modules that have an old name beside their own
MODULES = {"alchemy.scheduler": "alchemy.sched"}

# what loading leaves behind or takes out; never a mistake
LOADING = ("base", "variant", "dynamic")

# tables of later versions: accepted, and said to be without effect
LATER = ("sweep",)

# settings of one run, which belong on the command line, and the option that sets them
RUN_SETTINGS = {
    "device": "--device N",
    "no_file": "--no-file",
    "desc": "--desc TEXT",
    "debug": "--debug",
    "user_dir": "--user-dir DIR",
    "force_mp": "--force-mp",
    "task_per_device": "--task-per-device N",
}

TOP_LEVEL = (*SETTINGS, *SECTIONS, "plugins", *LOADING, *LATER)

# what each runner cannot do without: tables, and the split of task.datasets that it reads
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

# keys of a part's table that are not handed to its constructor, and names that somebody else hands to it
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

# keys of a part, and of those derived from it, whose table is of this type; True: each table in it that names no other
INNER_TYPES = {
    ("alchemy.data.collate.Pad", "fields"): ("alchemy.data.columns.Padded", True),
    ("alchemy.tasks.translation.Translation", "limits"): ("alchemy.generate.Limits", False),
}

# keys whose text is the import path of a function or class
BUILT_BY_LOADER = ("collate_fn", "sampler", "batch_sampler", "worker_init_fn")
NAMES_CODE = ("fn", *BUILT_BY_LOADER)
GIVEN_BY_LOADER = ("data_source", "dataset", "generator", "seed")  # to what it builds, where the table does not
SAMPLERS = ("sampler", "batch_sampler")  # of these, the ones that must be iterated over

# what one of several optimizers, `[optim.<name>]`, takes beside its own keys, with the annotation to check against
NAMED_OPTIM = {"params": "str | list[str]"}

# the limits of what optimizers take that are not ours
RATES = {
    "lr": "Annotated[float, Ge(0), Finite()]",
    "trf_lr": "Annotated[float, Ge(0), Finite()]",
    "max_grad_norm": "Annotated[float, Gt(0)] | None",
    "weight_decay": "Annotated[float, Ge(0), Finite()]",
    "eps": "Annotated[float, Ge(0), Finite()] | list",
    "betas": "list[Annotated[float, Ge(0), Lt(1)]]",
}

# keys that a project's code may read from a table by convention, whatever its part takes
BY_CONVENTION = {
    "model": ("model_path",),
    "optim": ("lr", "weight_decay", "betas", "eps", "amsgrad", "max_grad_norm", "trf_lr"),
    "sched": ("epochs", "num_warmup_steps", "num_training_steps", "factor"),
    "backward": ("period",),
}
