"""The contract of export formats: an export exists only if it passed its check, and is complete and up to date."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch import nn

from alchemy.errors import AlchemyError
from alchemy.export import EXPORTERS
from alchemy.export.export_folder import MANIFEST, Export, export
from alchemy.export.exporter import Exporter, find_exporter
from tests.export.copying import Task, network, pairs


class Subject(NamedTuple):
    """A format with a model that it supports."""

    package: str  # package of the program that reads it
    task: object
    network: Callable[..., nn.Module]  # takes the number of training steps
    samples: Callable[[], Sequence[Any]]
    file: str  # one of its files


SUBJECTS = {"ctranslate2": Subject("ctranslate2", Task(), network, pairs, "model.bin")}


def test_every_format_is_a_subject() -> None:
    assert SUBJECTS.keys() == EXPORTERS.keys()


@pytest.fixture(params=SUBJECTS)
def name(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    pytest.importorskip(SUBJECTS[name].package, reason="the extra `export` is not installed")
    return name


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    return tmp_path / "record" / "export" / name


def exporter(name: str, precision: str = "", steps: int = 25) -> Exporter[Any]:
    kind, subject = find_exporter(name), SUBJECTS[name]
    return kind(subject.task, subject.network(steps=steps), precision or kind.precisions[0])


def made(folder: Path, name: str, **options: Any) -> Export:
    return export(folder, exporter(name, **options), SUBJECTS[name].samples)


def again(folder: Path, name: str, **options: Any) -> Export:
    """Return the existing export; it must not be built again."""

    def never() -> Sequence[Any]:
        raise AssertionError("it is made again")

    return export(folder, exporter(name, **options), never)


def spoilt(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of other weights."""
    kind = find_exporter(name)
    whole, other = kind.write, exporter(name, steps=20)
    monkeypatch.setattr(kind, "write", lambda self, folder: whole(other, folder))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_is_made_once_and_says_how_it_agrees(name: str, folder: Path) -> None:
    found = made(folder, name)
    assert found.agreement.lines == 30 and found.agreement.same > 0 and not found.old
    assert again(folder, name) == Export(folder, found.agreement, old=True)
    assert files(folder.parent) == [folder.name] and found.bytes > 10_000
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest[name] == exporter(name).version and set(manifest["files"]) < {
        path.relative_to(folder).as_posix() for path in folder.rglob("*")
    }


def test_other_weights_make_another(name: str, folder: Path) -> None:
    made(folder, name)
    assert not made(folder, name, steps=26).old
    assert again(folder, name, steps=26).old


@pytest.mark.parametrize("broken", ["file", MANIFEST])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_what_is_damaged_is_made_again(broken: str, damage: str, name: str, folder: Path) -> None:
    found = made(folder, name)
    path = folder / (SUBJECTS[name].file if broken == "file" else MANIFEST)
    whole = (folder / SUBJECTS[name].file).read_bytes()
    if damage == "gone" and broken != MANIFEST:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-9])
    assert made(folder, name) == found
    assert (folder / SUBJECTS[name].file).read_bytes() == whole


def test_one_of_an_older_format_is_made_again(name: str, folder: Path) -> None:
    found = made(folder, name)
    manifest = json.loads((folder / MANIFEST).read_text()) | {"format": 0}
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert made(folder, name) == found


def test_one_that_says_something_else_than_the_model_leaves_no_file(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoilt(name, monkeypatch)
    with pytest.raises(AlchemyError, match=r"of 30 sentences.*the export was discarded"):
        made(folder, name, steps=80)
    assert not folder.parent.exists()


def test_a_failed_check_leaves_the_one_before(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(folder, name)
    before = (folder / SUBJECTS[name].file).read_bytes()
    spoilt(name, monkeypatch)
    with pytest.raises(AlchemyError, match="the export was discarded"):
        made(folder, name, steps=26)
    assert (folder / SUBJECTS[name].file).read_bytes() == before and files(folder.parent) == [folder.name]


def test_without_samples_there_is_no_check(name: str, folder: Path) -> None:
    with pytest.raises(AlchemyError, match=r"no sentences to check the export on.*--lines FILE"):
        export(folder, exporter(name), list)
    assert not folder.parent.exists()


def test_what_it_cannot_hold_is_refused(name: str) -> None:
    kind = find_exporter(name)
    with pytest.raises(AlchemyError, match="does not support models of object"):
        kind(object(), SUBJECTS[name].network(), kind.precisions[0])
    with pytest.raises(AlchemyError, match="does not support the network Linear"):
        kind(SUBJECTS[name].task, nn.Linear(2, 2), kind.precisions[0])


def test_a_folder_of_somebody_else_is_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(AlchemyError, match="exists and is not an export"):
        made(tmp_path, name)
    assert files(tmp_path) == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(AlchemyError, match="exists and is not an export"):
        made(tmp_path / "file", name)
    with pytest.raises(AlchemyError, match="cannot be written: File exists"):
        made(tmp_path / "file" / "export", name)


def test_files_of_somebody_else_in_an_export_stay(name: str, folder: Path) -> None:
    made(folder, name)
    (folder / "notes").mkdir()
    (folder / "notes" / "mine.md").write_text("x")
    assert made(folder, name).old
    with pytest.raises(AlchemyError, match=r"mine.md is not part of the export to replace"):
        made(folder, name, steps=26)
    assert (folder / "notes" / "mine.md").read_text() == "x"


def test_a_format_that_is_not_there_is_refused() -> None:
    with pytest.raises(AlchemyError, match="unknown format 'nonsense'; available: ctranslate2"):
        find_exporter("nonsense")
