"""An export is there when it has passed its check, and stays as long as it is whole and of the same weights."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.export import kept, spec
from alchemy.export.check import Agreement, Pair
from alchemy.export.kept import MANIFEST, Export, Trained, exported
from alchemy.text import load_tokenizer
from tests.export.copying import SPECIAL, WORDS, network, sentences
from tests.hidden import HIDE

pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")


def trained(**options: Any) -> Trained:
    return Trained(network(**options), SPECIAL, WORDS, WORDS)


def pairs() -> list[Pair]:
    return [Pair(source, WORDS.decode(source)) for source in sentences(30)]


def never() -> list[Pair]:
    raise AssertionError("it is made again")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "record" / "export" / "ctranslate2-float32"


def test_it_is_made_once_and_says_how_it_agrees(folder: Path) -> None:
    made = exported(folder, trained(), "float32", pairs)
    assert made.agreement.lines == 30 and made.agreement.same + made.agreement.left == 30 and not made.old
    assert str(made.agreement).startswith(f"the same text for {made.agreement.same} of 30 sentences")
    assert exported(folder, trained(), "float32", never) == Export(folder, made.agreement, old=True)
    assert files(folder.parent) == [folder.name] and made.bytes > 10_000
    assert load_tokenizer(folder / "source").digest == load_tokenizer(folder / "target").digest == WORDS.digest


def test_other_weights_and_another_shape_make_another(folder: Path) -> None:
    exported(folder, trained(), "float32", pairs)
    made = exported(folder, trained(steps=26), "float32", pairs)
    assert not made.old
    assert exported(folder, trained(steps=26), "float32", never).old
    net = network(steps=26)
    before = kept.digest(net, SPECIAL)
    assert before != kept.digest(net, SPECIAL._replace(unk=5))
    assert before != kept.digest(network(steps=26, activation="gelu"), SPECIAL)


@pytest.mark.parametrize("name", ["model.bin", "shared_vocabulary.json", MANIFEST])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_is_damaged_is_made_again(name: str, damage: str, folder: Path) -> None:
    made = exported(folder, trained(), "float32", pairs)
    whole = (folder / "model.bin").read_bytes()
    if damage == "gone" and name != MANIFEST:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    assert exported(folder, trained(), "float32", pairs) == made
    assert (folder / "model.bin").read_bytes() == whole


def test_one_of_an_older_format_is_made_again(folder: Path) -> None:
    made = exported(folder, trained(), "float32", pairs)
    manifest = json.loads((folder / MANIFEST).read_text()) | {"format": 0}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert exported(folder, trained(), "float32", pairs) == made


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_conversion_that_is_wrong_leaves_no_file(
    precision: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = spec.spec_of

    def spoilt(*words: Any) -> Any:
        made = whole(*words)
        made.decoder.layer[0].ffn.linear_1.weight[:] += 0.3
        made.encoder.layer[0].self_attention.linear[1].weight[:] *= -2
        return made

    monkeypatch.setattr(kept, "spec_of", spoilt)
    words = "other texts than the model" if precision == "float32" else "BLEU of int8 is more than 0.5 away"
    with pytest.raises(AlchemyError, match=f"{words}.*of 30 sentences.*it is not kept"):
        exported(folder, trained(steps=80), precision, pairs)
    assert not folder.parent.exists()


def test_a_failed_check_leaves_the_one_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(folder, trained(), "float32", pairs)
    before = (folder / "model.bin").read_bytes()
    monkeypatch.setattr(kept, "spec_of", lambda net, special: spec.spec_of(network(steps=20), special))
    with pytest.raises(AlchemyError, match="other texts than the model"):
        exported(folder, trained(steps=26), "float32", pairs)
    assert (folder / "model.bin").read_bytes() == before and files(folder.parent) == [folder.name]


def test_int8_is_compared_by_bleu(folder: Path) -> None:
    made = exported(folder, trained(steps=80), "int8", pairs)
    found = made.agreement
    assert found.bleu is not None and found.own_bleu is not None and abs(found.bleu - found.own_bleu) <= 0.5
    assert f"BLEU {found.bleu:.2f}, the model's {found.own_bleu:.2f}" in str(found)
    with pytest.raises(AlchemyError, match=r"int8 is checked by its BLEU.*--references FILE"):
        exported(folder.with_name("other"), trained(), "int8", lambda: [Pair(source) for source in sentences(3)])
    assert files(folder.parent) == [folder.name]


@pytest.mark.parametrize("found", [[], [Pair([4] * 3000)]], ids=["none", "too long"])
def test_without_sentences_there_is_no_check(found: Sequence[Pair], folder: Path) -> None:
    with pytest.raises(AlchemyError, match=r"no sentences to check the export on.*--lines FILE"):
        exported(folder, trained(), "float32", lambda: found)
    assert not folder.parent.exists()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(AlchemyError, match="is there, and it is no export"):
        exported(tmp_path, trained(), "float32", pairs)
    assert files(tmp_path) == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(AlchemyError, match="is there, and it is no export"):
        exported(tmp_path / "file", trained(), "float32", pairs)
    with pytest.raises(AlchemyError, match="cannot be written: File exists"):
        exported(tmp_path / "file" / "export", trained(), "float32", pairs)


def test_files_of_somebody_else_in_an_export_stay(folder: Path) -> None:
    exported(folder, trained(), "float32", pairs)
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.md").write_text("x")
    assert exported(folder, trained(), "float32", pairs).old
    with pytest.raises(AlchemyError, match=r"mine.md is no part of the export that is to be replaced"):
        exported(folder, trained(), "int8", pairs)
    assert (folder / "notes" / "mine.md").read_text() == "x"


def test_an_agreement_tells_what_it_counted() -> None:
    assert str(Agreement(200, 197, 2, 1)) == (
        "the same text for 197 of 200 sentences, another with the same score for 2, 1 left to the model's own search"
    )


def test_a_missing_package_is_named_when_it_is_needed() -> None:
    code = """
import alchemy.cli.export, alchemy.export.kept
from alchemy.errors import AlchemyError
from alchemy.export.spec import library
try:
    library()
except AlchemyError as error:
    print(error)
"""
    hidden = HIDE.format(hidden=["ctranslate2"]) + code
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, timeout=120)
    assert "needs the package ctranslate2" in done.stdout and "pip install 'alchemy[export]'" in done.stdout, done
