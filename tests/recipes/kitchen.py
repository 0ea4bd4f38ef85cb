"""Prepare the recipes for tests: a copy of their folder, truncated data, and a small model as pretrained weights."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import string
from pathlib import Path
from types import ModuleType

import pytest

from tests.text.sets import DATA, needs

ROOT = Path(__file__).parents[2] / "recipes"
TABLE = ROOT / "tables" / "recipes.toml"
FILES = sorted(path for path in ROOT.glob("*/*.toml") if path.stem != "base" and path != TABLE)
SETS = {"thucnews": "thucnews_title10", "sst2": "sst2_sentences", "semeval": "semeval2010_task8"}
SETS |= {"resume_ner": "ner_zh_resume", "trec": "trec", "multi30k": "multi30k_en_de"}
SETS |= {"nuclei": "nuclei", "mnist": "mnist", "fashion_mnist": "fashion_mnist"}
SETS |= {"blat": "protein_blat_p62593", "protein_ss": "protein_ss"}
FASHION = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package


def name_of(file: Path) -> str:
    return f"{file.parent.name}-{file.stem}"


def set_out(file: Path) -> Path:
    """Copy the recipes into the working folder, which contains their data, and prepare one; return its path."""
    needs(SETS[file.parent.name])
    for part in (*ROOT.rglob("*.toml"), *ROOT.rglob("*.ids")):
        copy = Path(part.relative_to(ROOT))
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(part.read_bytes())
    if file.parent.name == "fashion_mnist":
        if not FASHION.is_dir():
            pytest.skip("Fashion-MNIST not found: install the package dataset-fashion-mnist")
        Path("fashion-mnist").symlink_to(FASHION)
    if (file.parent / "prepare.py").is_file():
        assert loaded(f"{file.parent.name}/prepare").prepare() == 0
    return file.relative_to(ROOT)


def shorten(name: str, to: Path, lines: int) -> None:
    """Write the first lines of every file of a dataset to a folder; files of images are linked."""
    whole = needs(name)
    for file in whole.rglob("*"):
        copy = to / name / file.relative_to(whole)
        opener = gzip.open if file.suffix == ".gz" else open
        if not file.is_file():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".png" or "ubyte" in file.name:
            copy.symlink_to(file)
        else:
            with opener(file, "rt", encoding="utf-8") as there, opener(copy, "wt", encoding="utf-8") as here:
                here.writelines(itertools.islice(there, max(lines, 400) if "codes" in file.name else lines))


def small(file: Path) -> list[str]:
    """Write a small model with random weights in place of the pretrained one of a recipe."""
    if "bert" not in file.stem and "minilm" not in file.stem:
        return []
    signs = string.ascii_lowercase + string.digits + string.punctuation
    train = DATA / "ner_zh_resume" / "train.char.bmes.gz"
    maker = loaded("small_bert")
    chinese = file.parent.name == "resume_ner"
    maker.make(maker.signs_of(train) if chinese else [*signs, *(f"##{sign}" for sign in signs)], Path("bert"))
    return ["--set", "model.encoder.path=bert", "--set", "task.tokenizer=bert", "--set", "task.max_length=512"]


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipes_{name.replace('/', '_')}", ROOT / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
