"""Records that links lead to, and ids that occur twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.records.bin import move_to_bin
from tests.analysis.fake_runs import write_run


def test_a_path_with_links_is_the_same_record(local_project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    name = write_run(local_project, 1, {})
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(local_project, target_is_directory=True)
    with RecordIndex.open() as index:
        assert index.find(str(link / name)).path == str(local_project / name)
        assert index.find(name).path == str(local_project / name)


def test_records_on_another_disk(local_project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A `records` folder that is a link belongs to the project; other links are not followed."""
    disk = tmp_path_factory.mktemp("disk")
    for folder in ("records", "other"):
        name = write_run(disk / folder, 1, {})
        (local_project / folder).symlink_to(disk / folder, target_is_directory=True)
    with RecordIndex.open() as index:
        (row,) = index.query()
        assert row.path == str(local_project / "records" / name)
        move_to_bin(index.settings.home, row.folder, index.settings.roots, "")
    assert not (disk / "records" / name).exists()


def test_records_behind_a_link_inside_the_project_are_found_once(local_project: Path) -> None:
    name = write_run(local_project / "real", 1, {})
    (local_project / "records").symlink_to("real", target_is_directory=True)
    with RecordIndex.open() as index:
        assert index.find(f"records/{name}") == index.query()[0]
        assert len(index.query()) == 1


def test_an_id_that_occurs_twice(local_project: Path) -> None:
    for folder in ("one", "two"):
        name = write_run(local_project / folder, 1, {})
    with RecordIndex.open() as index, pytest.raises(AlchemyError, match=f"one/{name}, .*pass one of these folders"):
        index.find(name)


def test_a_file_in_place_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".alchemy").touch()
    with pytest.raises(AlchemyError, match=r"\.alchemy is not a folder; rename or delete it"), RecordIndex.open():
        pass


def test_a_copy_outside_the_project_does_not_make_an_id_ambiguous(
    local_project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    name = write_run(local_project, 1, {})
    write_run(elsewhere, 1, {})
    with RecordIndex.open() as index:
        assert index.find(str(elsewhere / name)).path == str(elsewhere / name)
        assert index.find(name).path == str(local_project / name)


def test_a_folder_that_does_not_exist(local_project: Path) -> None:
    with pytest.raises(AlchemyError, match="folder not found: 'recrods'"), RecordIndex.open(["recrods"]):
        pass
