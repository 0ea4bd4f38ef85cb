"""Renamed modules, so that old import paths in configs and records keep working."""

from __future__ import annotations

# old module -> new module, for modules whose names may appear in a config
MOVED = {
    "alchemy.generate.beam": "alchemy.generate.beam_search",
    "alchemy.generate.hypothesis": "alchemy.generate.search",
    "alchemy.generate.sample": "alchemy.generate.sampling",
    "alchemy.launch.group": "alchemy.launch.process_group",
    "alchemy.models.base": "alchemy.models.text_model",
    "alchemy.nn.adamw": "alchemy.nn.bert_adamw",
    "alchemy.nn.curves": "alchemy.nn.lr_curves",
    "alchemy.nn.positions": "alchemy.nn.position_embeddings",
    "alchemy.nn.rows": "alchemy.nn.sequences",
    "alchemy.optim.parts": "alchemy.optim.optimizers",
    "alchemy.optim.several": "alchemy.optim.multiple",
    "alchemy.pipeline.findings": "alchemy.pipeline.error_analysis",
    "alchemy.pipeline.targets": "alchemy.pipeline.label_ids",
    "alchemy.plain": "alchemy.plain_model",
    "alchemy.plugins.basic": "alchemy.plugins.console",
    "alchemy.plugins.board": "alchemy.plugins.tensorboard",
    "alchemy.plugins.files": "alchemy.plugins.file_logger",
    "alchemy.plugins.profile": "alchemy.plugins.profiler",
    "alchemy.sched.parts": "alchemy.sched.schedules",
    "alchemy.tasks.text": "alchemy.tasks.text_task",
    "alchemy.text.foreign": "alchemy.text.external",
    "alchemy.verify.find": "alchemy.verify.finders",
    "alchemy.verify.parallel": "alchemy.verify.gradient_check",
    "alchemy.verify.trial": "alchemy.verify.trial_runs",
}


def current_path(dotted: str) -> str:
    """Return the current import path for a possibly old one.

    >>> current_path("alchemy.optim.parts.AdamW"), current_path("src.model.Net")
    ('alchemy.optim.optimizers.AdamW', 'src.model.Net')
    """
    module, _, name = dotted.rpartition(".")
    return f"{MOVED[module]}.{name}" if module in MOVED else dotted
