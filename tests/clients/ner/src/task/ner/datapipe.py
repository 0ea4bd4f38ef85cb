"""From a jsonl file to encoded samples, one small step a class."""

import json
import zlib
from pathlib import Path
from typing import Iterable, Iterator

import numpy as np
from loguru import logger

from alchemy import sym_tbl
from alchemy.pipeline import DataPipeline, ItrDataPipeline
from alchemy.util import merge_max_position_constraints


@DataPipeline.register("JsonLOpener")
class JsonLOpener(ItrDataPipeline):
    # the constructor of the base is called without the pipe before it ...
    def __init__(self, datapipe: Iterable[str], **kwargs):
        super().__init__()
        self.datapipe = datapipe

    def __iter__(self) -> Iterator:
        for file in self.datapipe:
            with Path(file).open("r", encoding="utf8") as f:
                for line in f:
                    yield json.loads(line)


@DataPipeline.register("ParseJsonDoc")
class ParseJsonDoc(ItrDataPipeline):
    # ... or with it
    def __init__(self, datapipe: ItrDataPipeline, **kwargs):
        super().__init__(datapipe)
        self.lowercase = kwargs.get("lowercase", True)

    def __iter__(self) -> Iterator:
        for d in self.datapipe:
            tokens = [t.lower() if self.lowercase else t for t in d["tokens"]]
            yield {"id": d["id"], "tokens": d["tokens"], "words": tokens, "entities": d.get("entities", [])}


@DataPipeline.register("PruneLongText")
class PruneLongText(ItrDataPipeline):
    def __init__(self, datapipe: ItrDataPipeline, **kwargs):
        super().__init__()
        self.datapipe = datapipe
        self.max_positions = merge_max_position_constraints(
            sym_tbl().task.max_positions(), sym_tbl().model.max_positions()
        )

    def __iter__(self) -> Iterator:
        for d in self.datapipe:
            if self.max_positions is not None and len(d["words"]) > self.max_positions:
                logger.warning("doc_id={} is too long: {} > {}".format(d["id"], len(d["words"]), self.max_positions))
                continue
            yield d


@DataPipeline.register("Sample2Encoding")
class Sample2Encoding(ItrDataPipeline):
    def __init__(self, datapipe: ItrDataPipeline, **kwargs):
        super().__init__()
        self.datapipe = datapipe
        self.scheme = sym_tbl().task.scheme
        self.buckets = sym_tbl().model.model_cfg["buckets"]

    def __iter__(self) -> Iterator:
        for d in self.datapipe:
            ids = [1 + zlib.crc32(word.encode()) % (self.buckets - 1) for word in d["words"]]
            yield {
                "encoding": np.asarray(ids),
                "mask": np.ones(len(ids), dtype=bool),
                "tags": np.asarray(self.scheme.encode(d["entities"], len(ids))),
                "raw": d,
            }
