"""What differs between two records, section by section."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alchemy.analysis import code_files
from alchemy.analysis.diff import Section, Side, diff_records
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import change_info, write_code, write_curves, write_environment, write_ledger

CODE = {"src/model.py": "a = 1\nb = 2\n", "src/data.py": "c = 3\n"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".alchemy").mkdir()
    return tmp_path


def whole(root: Path, number: int, loss: float = 0.5, **config: object) -> Path:
    folder = write_curves(root, number, {"train/loss": [1.0, loss], "time/step": [0.1, number]}, {"lr": 0.1} | config)
    write_code(folder, CODE)
    write_environment(folder)
    write_ledger(folder, ["aa", "bb"])
    return folder


def compare(a: Path, b: Path) -> dict[str, Section]:
    with RecordIndex.open() as index:
        one, other = (Side(index, index.find(str(folder))) for folder in (a, b))
        return {section.name: section for section in diff_records(one, other)}


def test_equal_records_are_identical_in_every_section(project: Path) -> None:
    found = compare(whole(project, 1), whole(project, 2))
    assert [section.identical for section in found.values()] == [True] * 5
    assert found["code"].text == "2 files" and found["ledger"].text == "2 updates"


def test_each_section_shows_its_differences(project: Path) -> None:
    one, other = whole(project, 1), whole(project, 2, loss=0.4, lr=0.2, depth=3)
    write_code(other, CODE | {"src/model.py": "a = 1\nb = 5\n"})
    (other / "backup/src/new.py").write_text("d = 4\n")
    write_environment(other, packages={"numpy": "2.1"})
    write_ledger(other, ["aa", "cc"])
    found = compare(one, other)
    assert not any(section.identical for section in found.values())
    assert found["config"].changes == [("lr", "0.1", "0.2"), ("depth", None, "3")]
    assert found["environment"].changes == [("packages.numpy", "2.0", "2.1")]
    assert found["metrics"].changes == [("train/loss", {"last": 0.5, "best": 0.5}, {"last": 0.4, "best": 0.4})]
    assert "first logged difference at update 2: train/loss 0.5 vs. 0.4" in found["metrics"].text
    assert found["ledger"].update == 2
    changed, new = found["code"].files
    assert changed.diff.splitlines()[-2:] == ["-b = 2", "+b = 5"]
    assert (new.file, new.change) == ("src/new.py", "only in B")


def test_another_commit_with_the_same_files_is_identical_code(project: Path) -> None:
    one, other = whole(project, 1), whole(project, 2)
    for folder, name in ((one, "a"), (other, "b")):
        change_info(folder, git={"commit": name * 40, "branch": "main", "dirty": False}, alchemy={"hash": name})
    found = compare(one, other)
    assert found["code"].identical and found["code"].changes == [("git commit", "a" * 40, "b" * 40)]
    assert found["environment"].changes == [("alchemy code", "a", "b")]


@pytest.mark.parametrize("backups", [(True, False), (False, False)])
def test_without_a_backup_hashes_are_compared(project: Path, backups: tuple[bool, bool]) -> None:
    folders = [write_curves(project, number, {"train/loss": [1.0]}) for number in (1, 2)]
    changed = CODE | {"src/data.py": "c = 4\n"}
    for folder, files, backup in zip(folders, (CODE, changed), backups, strict=True):
        write_code(folder, files, backup=backup)
    found = compare(*folders)["code"]
    assert [(file.file, file.diff) for file in found.files] == [("src/data.py", "")]
    assert "only hashes are compared" in found.files[0].note


def test_without_any_file_the_hash_of_the_code_decides(project: Path) -> None:
    folders = [write_curves(project, number, {"train/loss": [1.0]}) for number in (1, 2)]
    assert compare(*folders)["code"].identical is None
    for folder in folders:
        change_info(folder, code_hash="c" * 64)
    assert compare(*folders)["code"].identical is True


def test_what_is_missing_or_damaged_is_said_and_the_rest_is_compared(project: Path) -> None:
    one, other = whole(project, 1), whole(project, 2)
    (one / "env.json").write_text("[1]")
    (one / "cfg.toml").write_text("a = = 1")
    (other / "ledger.jsonl").unlink()
    (other / "metrics.jsonl").unlink()
    found = compare(one, other)
    assert [section.identical for section in found.values()] == [None, True, None, None, None]
    assert all("cannot be compared" in section.text for section in found.values() if section.identical is None)
    assert "no ledger.jsonl in B" in found["ledger"].text


def test_a_damaged_ledger_row_is_reported(project: Path) -> None:
    one, other = whole(project, 1), whole(project, 2)
    (other / "ledger.jsonl").write_text('{"update": 1}\n')
    assert "not a ledger row" in compare(one, other)["ledger"].text


def test_secrets_stay_masked_and_the_same_secret_is_no_difference(project: Path) -> None:
    one, other = (whole(project, number, hub={"token": f"***pbkdf2:{number:032x}:{number:064x}"}) for number in (1, 2))
    assert compare(one, other)["config"].identical
    (other / "cfg.toml").write_text((other / "cfg.toml").read_text().replace("***pbkdf2", "hunter2"))
    changes = compare(one, other)["config"].changes
    assert changes == [("hub.token", '"***"', '"***"')]


def test_links_fifos_binaries_and_long_files_in_a_backup_do_no_harm(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_files, "MOST_LINES", 3)
    folders = [whole(project, number) for number in (1, 2)]
    for place, folder in enumerate(folders):
        (folder / "backup/out").symlink_to("/etc/passwd")
        os.mkfifo(folder / "backup/fifo")
        (folder / "backup/x.bin").write_bytes(b"\0" + bytes([place]))
        (folder / "backup/long.py").write_text("x\n" * 5 + str(place))
    found = compare(*folders)["code"]
    assert [file.file for file in found.files] == ["long.py", "x.bin"]
    assert [file.note for file in found.files] == ["it has more than 3 lines", found.files[1].note]
    assert "binary" in found.files[1].note


def test_runs_of_different_length_part_where_the_shorter_ends(project: Path) -> None:
    one, other = whole(project, 1), whole(project, 2)
    write_ledger(other, ["aa", "bb", "cc"])
    found = compare(one, other)["ledger"]
    assert (found.identical, found.update) == (False, 3)
    assert found.text == "equal for the first 2 updates; A has 2, B has 3"
