"""Specific to the CTranslate2 export: the tokenizers next to the model, and int8, compared by BLEU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.export import ctranslate2
from alchemy.export.ctranslate2 import CTranslate2, Pair
from alchemy.export.ctranslate2_spec import build_spec, digest
from alchemy.export.export_folder import Export, export
from alchemy.export.exporter import Agreement
from alchemy.text import load_tokenizer
from tests.export.copying import SPECIAL, WORDS, Task, network, pairs, sentences
from tests.hidden import HIDE

pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")


def made(folder: Path, precision: str = "float32", samples: Any = pairs, **options: Any) -> Export:
    return export(folder, CTranslate2(Task(), network(**options), precision), samples)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "export" / "ctranslate2-float32"


def test_it_has_the_tokenizers_of_both_sides(folder: Path) -> None:
    found = made(folder).agreement
    assert found.same + found.left == 30
    assert str(found).startswith(f"the same text for {found.same} of 30 sentences")
    assert load_tokenizer(folder / "source").digest == load_tokenizer(folder / "target").digest == WORDS.digest


def test_all_that_decides_it_is_in_its_hash() -> None:
    net = network(steps=26)
    before = digest(net, SPECIAL)
    assert before != digest(net, SPECIAL._replace(unk=5))
    assert before != digest(network(steps=26, activation="gelu"), SPECIAL)


def test_a_vocabulary_that_is_damaged_is_written_again(folder: Path) -> None:
    found = made(folder)
    (folder / "shared_vocabulary.json").unlink()
    assert made(folder) == found and (folder / "shared_vocabulary.json").is_file()


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_conversion_that_is_wrong_leaves_no_file(
    precision: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoilt(*words: Any) -> Any:
        spec = build_spec(*words)
        spec.decoder.layer[0].ffn.linear_1.weight[:] += 0.3
        spec.encoder.layer[0].self_attention.linear[1].weight[:] *= -2
        return spec

    monkeypatch.setattr(ctranslate2, "build_spec", spoilt)
    words = "generate different texts" if precision == "float32" else "BLEU score with int8 differs by more than 0.5"
    with pytest.raises(AlchemyError, match=f"{words}.*of 30 sentences.*the export was discarded"):
        made(folder, precision, steps=80)
    assert not folder.parent.exists()


def test_int8_is_compared_by_bleu(folder: Path) -> None:
    found = made(folder, "int8", steps=80).agreement
    assert found.bleu is not None and found.own_bleu is not None and abs(found.bleu - found.own_bleu) <= 0.5
    assert f"BLEU {found.bleu:.2f}, the model's {found.own_bleu:.2f}" in str(found)
    with pytest.raises(AlchemyError, match=r"int8 is checked by its BLEU.*--references FILE"):
        made(folder.with_name("other"), "int8", lambda: [Pair(source) for source in sentences(3)])
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_sentences_that_are_too_long_are_not_looked_at(folder: Path) -> None:
    with pytest.raises(AlchemyError, match=r"no sentences to check the export on.*--lines FILE"):
        made(folder, samples=lambda: [Pair([4] * 3000)])
    assert not folder.parent.exists()


def test_an_agreement_tells_what_it_counted() -> None:
    assert str(Agreement(200, 197, 2, 1)) == (
        "the same text for 197 of 200 sentences, a different text with the same score for 2, "
        "1 handled by the model's own search"
    )


def test_a_missing_package_is_named_when_it_is_needed() -> None:
    code = """
import alchemy.cli.export, alchemy.export.export_folder
from alchemy.errors import AlchemyError
from alchemy.export.ctranslate2_spec import import_ctranslate2
try:
    import_ctranslate2()
except AlchemyError as error:
    print(error)
"""
    hidden = HIDE.format(hidden=["ctranslate2"]) + code
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=120)
    assert "needs the package ctranslate2" in done.stdout and "pip install 'alchemy[export]'" in done.stdout, done
