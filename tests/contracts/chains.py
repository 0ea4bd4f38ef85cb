"""A chain of data pipes for every listed pipe, which is the last of its chain; all chains read the same few files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

from alchemy.text import Words

ROOM = "alchemy.pipeline"
TRANSFORMS = "alchemy.images.transforms"
SAMPLES = [{"n": number, "text": "x" * (number % 5)} for number in range(11)]
TEXTS: list[dict[str, Any]] = [
    {"id": str(i), "text": text, "tokens": text.split(), "label": "ab"[i % 2]}
    for i, text in enumerate(["a b c", "b", "c a"])
]
FILES = {
    "rows.jsonl": '{"a": 1}\n{"a": 2}\n',
    "rows.csv": "a,b\n1,2\n3,4\n",
    "rows.tsv": "a\tb\n1\t2\n3\t4\n",
    "ids.txt": "0\n2\n",
    "texts.csv": "text,label\nx,good\ny,bad\n",
    "pairs.tsv": "a\tA\nb\tB\n",
    "related.tsv": "r\tA <e1> b </e1> c <e2> d </e2>.\nr\t<e2>d</e2> <e1>b</e1>\n",
    "spans.jsonl": '{"text": "in Rome", "spans": [[3, 7, "LOC"]]}\n{"text": "y", "spans": []}\n',
    "tags.txt": "x B-PER\ny I-PER\n\nz O\n",
    "proteins.fasta": ">0|x|0.5\nACD\nefg\n>1|y|-1\nAC\n",
}


def write_files(folder: Path, corpora: Path) -> None:
    """Write all files that the chains read to a folder."""
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    (folder / "corpora").symlink_to(corpora)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"a": 1}, {"a": 2}]), folder / "rows.parquet")
    (folder / "images").write_bytes(struct.pack(">BBBB3I", 0, 0, 8, 3, 2, 3, 2) + bytes(range(12)))
    (folder / "pets" / "cat").mkdir(parents=True)
    Image.fromarray(np.full((4, 2), 100, np.uint8)).save(folder / "pets" / "cat" / "a.png")
    (folder / "masks").mkdir()
    Image.fromarray(np.array([[0, 1], [255, 1]], np.uint8)).save(folder / "masks" / "b.png")
    (folder / "photos").mkdir()
    Image.fromarray(np.full((2, 2, 3), 7, np.uint8)).save(folder / "photos" / "b.png")
    (folder / "photos.csv").write_text("file,label\nphotos/b.png,x\n", "utf-8")
    Words.train(row["text"] for row in TEXTS).save(folder / "words")


def is_odd(sample: dict[str, Any], key: str = "n") -> bool:
    return bool(sample[key] % 2)


def doubled(number: int, by: int = 2) -> int:
    return number * by


def _pipe(name: str, **options: Any) -> dict[str, Any]:
    return {"type": f"{ROOM}.{name}", **options}


def _over(samples: Any, *pipes: dict[str, Any]) -> dict[str, Any]:
    """A case whose chain begins with samples; the tested part is the last one."""
    first = _pipe("lst.SequenceWrapper", datapipe=samples)
    return {"type": [first, *pipes][-1]["type"], "chain": [first, *pipes]}


def _reads(name: str, **options: Any) -> dict[str, Any]:
    """A case for a pipe that begins a chain."""
    return {"type": f"{ROOM}.{name}", "chain": [_pipe(name, **options)]}


WORDS = {"tokenizer": "words"}
CHAINS = {
    "Cache": _over(TEXTS, _pipe("encode.Encode", **WORDS), _pipe("cache.Cache")),
    "Mapped": _reads("corpora.Mapped", path="corpora/dev.en"),
    "Parallel": _reads("corpora.Parallel", source="corpora/dev.en", target="corpora/dev.de"),
    "Encode": _over(TEXTS, _pipe("encode.Encode", **WORDS)),
    "EncodeStream": _over(TEXTS, _pipe("encode.EncodeStream", **WORDS)),
    "EncodeWords": _over(TEXTS, _pipe("encode.EncodeWords", **WORDS)),
    "EncodeWordsStream": _over(TEXTS, _pipe("encode.EncodeWordsStream", **WORDS)),
    "Batch": _over(SAMPLES, _pipe("itr.Batch", batch_size=4)),
    "BucketBatch": _over(SAMPLES, _pipe("itr.BucketBatch", batch_size=2, key="text")),
    "Concat": _over(SAMPLES, _pipe("itr.Concat", pipes=[SAMPLES[:2]])),
    "Fields": _over(SAMPLES, _pipe("itr.Fields", keep=["n"])),
    "itr.Filter": _over(SAMPLES, _pipe("itr.Filter", fn=f"{__name__}.is_odd")),
    "itr.Map": _over(SAMPLES, _pipe("itr.Map", fn=f"{__name__}.doubled", field="n", args={"by": 3})),
    "Sample": _reads("itr.Sample", datapipe=[SAMPLES[:2], SAMPLES[2:]], ratios=[1, 2], epoch_items=7),
    "Shuffle": _over(SAMPLES, _pipe("itr.Shuffle", buffer_size=4)),
    "SplitByWorker": _over(SAMPLES, _pipe("itr.SplitByWorker")),
    "itr.Take": _over(SAMPLES, _pipe("itr.Take", n=4)),
    "WithLength": _over(SAMPLES, _pipe("itr.WithLength", length=11)),
    "lst.Filter": _over(SAMPLES, _pipe("lst.Filter", fn=f"{__name__}.is_odd", args={"key": "n"})),
    "HoldOut": _over(SAMPLES, _pipe("lst.HoldOut", share=0.3)),
    "ItrToLst": _over(SAMPLES, _pipe("lst.ItrToLst", is_sized=True)),
    "lst.Map": _over(SAMPLES, _pipe("lst.Map", fn=f"{__name__}.doubled", field="n")),
    "SequenceWrapper": _over(SAMPLES),
    "lst.Take": _over(SAMPLES, _pipe("lst.Take", n=4)),
    **{
        f"{kind}Opener": _over([f"rows.{kind.lower()}"], _pipe(f"openers.{kind}Opener"))
        for kind in ("Csv", "Jsonl", "Parquet", "Tsv")
    },
    "LineOpener": _over(["ids.txt"], _pipe("openers.LineOpener")),
    "Fasta": _reads("processors.Fasta", path="proteins.fasta", target=-1),
    "Proteins": _reads("processors.Proteins", path="proteins.fasta", label=-1, kind="regression"),
    "IdxImages": _reads("processors.IdxImages", path="images"),
    "ImageFolder": _reads("processors.ImageFolder", path="pets"),
    "ImageMasks": _reads("processors.ImageMasks", path="photos", mask_path="masks", labels=["no", "yes"]),
    "ImageTable": _reads("processors.ImageTable", path="photos.csv", labels=["x"]),
    "TransformImages": {
        "type": f"{ROOM}.image_transforms.TransformImages",
        "chain": [
            _pipe("processors.IdxImages", path="images"),
            _pipe("image_transforms.TransformImages", transforms=[{"type": f"{TRANSFORMS}.RandomCrop", "pad": 1}]),
        ],
    },
    "ParallelText": _reads("processors.ParallelText", path="pairs.tsv"),
    "Relation": _reads("processors.Relation", path="related.tsv"),
    "Spans": _reads("processors.Spans", path="spans.jsonl", labels=["LOC"]),
    "SplitById": _over(TEXTS, _pipe("processors.SplitById", ids="ids.txt")),
    "Tagging": _reads("processors.Tagging", path="tags.txt", scheme="BIO"),
    "TextClassification": _reads("processors.TextClassification", path="texts.csv"),
    "LabelIds": _over(TEXTS, _pipe("label_ids.LabelIds", labels=["a", "b"])),
    "Windows": _over(TEXTS, _pipe("encode.Encode", **WORDS), _pipe("windows.Windows", max_length=2, overlap=1)),
    "WindowsStream": _over(
        TEXTS, _pipe("encode.EncodeStream", **WORDS), _pipe("windows.WindowsStream", max_length=2, overlap=1)
    ),
}
