"""Spans as one tag a token, and back."""

from typing import Any, Dict, List


class BioScheme:
    def __init__(self, types: List[str]) -> None:
        self.tags = ["O"] + [f"{prefix}-{t}" for t in types for prefix in "BI"]
        self.index = {tag: i for i, tag in enumerate(self.tags)}

    @property
    def num_tags(self) -> int:
        return len(self.tags)

    def encode(self, entities: List[Dict[str, Any]], length: int) -> List[int]:
        tags = [0] * length
        for entity in entities:
            tags[entity["start"]] = self.index["B-" + entity["type"]]
            for i in range(entity["start"] + 1, entity["end"] + 1):
                tags[i] = self.index["I-" + entity["type"]]
        return tags

    def decode(self, tags: List[int]) -> List[Dict[str, Any]]:
        spans: List[Dict[str, Any]] = []
        for i, tag in enumerate(self.tags[t] for t in tags):
            if tag.startswith("B-"):
                spans.append({"start": i, "end": i, "type": tag[2:]})
            elif tag.startswith("I-") and spans and spans[-1]["end"] == i - 1 and spans[-1]["type"] == tag[2:]:
                spans[-1]["end"] = i
        return spans
