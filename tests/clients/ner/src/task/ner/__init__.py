"""The task: which entity types there are, the data sets, the pipes that score them."""

import json
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, List

from loguru import logger

from alchemy import AlchemyTask
from alchemy.pipeline import DataPipeline, EvalPipeline, OutputPipeline
from alchemy.util.sym import sym_tbl

from .. import CollateFn
from .tagging import BioScheme


@AlchemyTask.register("NerTask")
class NerTask(AlchemyTask):
    """Old generation: fills its pipes in the constructor and writes `_datasets` itself."""

    def __init__(self):
        super().__init__()
        meta_path = Path(self.cfg["meta"])
        with meta_path.open(encoding="utf8") as f:
            self.entity_types = OrderedDict(json.load(f)["entities"])
        self.scheme = BioScheme(list(self.entity_types))
        record_dir = sym_tbl().try_get_global("record_dir")
        if record_dir is not None:
            (record_dir / "meta.json").write_text(meta_path.read_text(encoding="utf8"), encoding="utf8")

        for p_cfg in self.cfg.get("outputpipes", []):
            self.outputpipes.append(OutputPipeline.from_registry(p_cfg["type"], **p_cfg))
        for p_cfg in self.cfg.get("evalpipes", []):
            self.evalpipes.append(EvalPipeline.from_registry(p_cfg["type"], **p_cfg))

    def max_positions(self):
        return self.cfg.get("max_positions")

    def collate_fn(self, kwargs: Dict[str, Any]):
        table = kwargs.pop("collate_fn", {"type": "src.task.ner.collate.Pad"})
        return CollateFn.from_registry(table["type"], **table)

    def load_dataset(self, split: str, **kwargs):
        logger.info(f"Load dataset {split}")
        if "batch_size" not in kwargs:
            kwargs["batch_size"] = None
        pipes: List[Dict[str, Any]] = kwargs.pop("pipes")
        collate_fn = self.collate_fn(kwargs)
        for i, p_cfg in enumerate(pipes):
            if i == 0:
                datapipe = DataPipeline.from_registry(p_cfg["type"], **p_cfg)
            else:
                datapipe = DataPipeline.from_registry(p_cfg["type"], datapipe, **p_cfg)
        self._datasets[split] = (datapipe, {"collate_fn": collate_fn, **kwargs})


@AlchemyTask.register()
class SuperNerTask(NerTask):
    """New generation: the base builds the pipes, and gets the collate function as an object."""

    def load_dataset(self, split: str, **kwargs):
        AlchemyTask.load_dataset(self, split, collate_fn=self.collate_fn(kwargs), **kwargs)
