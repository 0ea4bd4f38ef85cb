"""The tags of a batch as spans, one dict a sample."""

from typing import Any, Dict, List, MutableMapping

from alchemy import sym_tbl
from alchemy.pipeline import OutputPipeline


@OutputPipeline.register("ProcTagging")
class ProcTaggingOutput(OutputPipeline):
    def __init__(self, **kwargs):
        super().__init__()

    def __call__(self, outputs: Dict[str, Any], inputs: MutableMapping[str, Any]) -> List[Dict[str, Any]]:
        scheme = sym_tbl().task.scheme
        ret = []
        for tags, raw in zip(outputs["tags"], inputs["raw"]):
            preds = scheme.decode(tags[: len(raw["tokens"])].tolist())
            ret.append({"id": raw["id"], "tokens": raw["tokens"], "entities": raw["entities"], "preds": preds})
        return ret
