"""Archives: records come back as they were, and a hostile archive changes nothing outside."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.records.archive import write_archive
from alchemy.records.status import now
from alchemy.records.unpack_archive import BadArchive, check_name, unpack_archive
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run


def make(root: Path, number: int = 1) -> Path:
    record = root / write_run(root, number, {"dev/f1": 0.5})
    (record / "state/u1").mkdir(parents=True)
    (record / "state/u1/model").write_bytes(os.urandom(2048))
    (record / "state/last").mkdir()
    os.link(record / "state/u1/model", record / "state/last/model")
    (record / "results").mkdir()
    (record / "results" / "焦点.txt").write_text("x" * 200)
    return record


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar", "a.tgz"])
def test_records_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    records = [make(tmp_path / "records", number) for number in (1, 2)]
    (records[0] / ".lock").touch()
    packed = write_archive(tmp_path / name, records)
    assert packed.files == 14
    done = unpack_archive(tmp_path / name, tmp_path / "new")
    assert [path.name for path in done.added] == [record.name for record in records]
    (records[0] / ".lock").unlink()
    for record in records:
        assert content(tmp_path / "new" / record.name) == content(record)
    new = tmp_path / "new" / records[0].name
    assert os.path.samefile(new / "state/u1/model", new / "state/last/model")
    assert (new / "cfg.toml").stat().st_mtime == pytest.approx((records[0] / "cfg.toml").stat().st_mtime, abs=1)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in done.added}


def test_checkpoints_can_be_left_out(tmp_path: Path) -> None:
    record = make(tmp_path / "records")
    write_archive(tmp_path / "a.tar", [record], checkpoints=False)
    (new,) = unpack_archive(tmp_path / "a.tar", tmp_path / "new").added
    assert content(new) == {name: data for name, data in content(record).items() if not name.startswith("state")}


def test_links_and_special_files_are_left_out(tmp_path: Path) -> None:
    record = make(tmp_path / "records")
    (record / "link").symlink_to("/etc/passwd")
    (record / "folder").symlink_to("/etc")
    os.mkfifo(record / "fifo")
    packed = write_archive(tmp_path / "a.tar", [record])
    assert sorted(packed.left_out) == [f"{record.name}/{name}" for name in ("fifo", "folder", "link")]
    (new,) = unpack_archive(tmp_path / "a.tar", tmp_path / "new").added
    assert not any(path.is_symlink() for path in new.rglob("*"))


def test_an_existing_record_is_never_overwritten(tmp_path: Path) -> None:
    record = make(tmp_path / "records")
    write_archive(tmp_path / "a.tar", [record])
    (record / "README.md").write_text("changed")
    done = unpack_archive(tmp_path / "a.tar", tmp_path / "records")
    assert (done.added, done.existing) == ([], [record.name])
    assert (record / "README.md").read_text() == "changed"
    assert unpack_archive(tmp_path / "a.tar", tmp_path / "new", {record.name}).existing == [record.name]
    assert list((tmp_path / "new").iterdir()) == []


def test_what_cannot_be_archived(tmp_path: Path) -> None:
    record = make(tmp_path / "records")
    (tmp_path / "there.tar").touch()
    with pytest.raises(AlchemyError, match="exists already"):
        write_archive(tmp_path / "there.tar", [record])
    with pytest.raises(AlchemyError, match="folder not found"):
        write_archive(tmp_path / "none" / "a.tar", [record])
    with pytest.raises(AlchemyError, match="File name too long"):
        write_archive(tmp_path / ("a" * 300), [record])
    with pytest.raises(AlchemyError, match="is inside the record"):
        write_archive(record / "a.tar", [record])
    with pytest.raises(AlchemyError, match="the same id"):
        write_archive(tmp_path / "a.tar", [record, record])
    change_info(record, status="running", heartbeat=now())
    with pytest.raises(AlchemyError, match="is still running"):
        write_archive(tmp_path / "a.tar", [record])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "there.tar"]


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"{}"
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if kind == tarfile.REGTYPE else 0
    return info, data


def forge(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], manifest: object = None) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
        if manifest is not None:
            text = json.dumps(manifest).encode()
            tar.addfile(member("manifest.json", data=text)[0], io.BytesIO(text))
    return path


EMPTY = {"bytes": 2, "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
RECORD = {"id": "r", "files": {"record.json": EMPTY}, "links": {}}
ONE = {"format": 1, "records": [RECORD]}
INFO = member("r/record.json")


@pytest.mark.parametrize(
    ("members", "manifest", "message"),
    [
        ([], None, "has no manifest.json"),
        ([INFO], None, "has no manifest.json"),
        ([INFO], {"format": 2}, "format 2, expected 1"),
        ([INFO], [], "manifest.json is damaged"),
        ([INFO], {"format": 1, "records": [{"id": "r"}]}, "manifest.json is damaged"),
        ([INFO], {"format": 1, "records": [RECORD | {"files": {}}]}, "'r' is not a record"),
        ([INFO], {"format": 1, "records": [RECORD | {"id": "../r"}]}, "is not a record"),
        ([INFO], {"format": 1, "records": [RECORD | {"id": 3}]}, "is not a record"),
        ([INFO], {"format": 1, "records": [RECORD, RECORD]}, "is not a record"),
        ([INFO], {"format": 1, "records": []}, "is not as its manifest says"),
        ([INFO, member("r/more")], ONE, "'r/more' is not as its manifest says"),
        ([member("r/record.json", data=b"[]")], ONE, "is not as its manifest says"),
        ([INFO, INFO], ONE, "occurs twice"),
        ([member("../r/record.json")], ONE, "a file with the name"),
        ([member("/etc/cron.d/x")], ONE, "a file with the name"),
        ([member("r/../../x")], ONE, "a file with the name"),
        ([member("r/a\x1b[2J")], ONE, "a file with the name"),
        ([member(".ssh/authorized_keys")], ONE, "a file with the name"),
        ([member("r\\..\\x")], ONE, "a file with the name"),
        ([member("record.json")], ONE, "is not a file in a record"),
        ([INFO, member("r/x", tarfile.SYMTYPE, "/etc/passwd")], ONE, "is not a regular file"),
        ([INFO, member("r/x", tarfile.LNKTYPE, "/etc/passwd")], ONE, "which is not a file of the record"),
        ([INFO, member("r/x", tarfile.LNKTYPE, "../../etc/passwd")], ONE, "which is not a file of the record"),
        ([INFO, member("s/x", tarfile.LNKTYPE, "r/record.json")], ONE, "which is not a file of the record"),
        ([INFO, member("r/x", tarfile.FIFOTYPE)], ONE, "is not a regular file"),
        ([INFO, member("r/x", tarfile.CHRTYPE)], ONE, "is not a regular file"),
        ([INFO, member("r/x", tarfile.DIRTYPE)], ONE, "is not a regular file"),
        ([INFO, member("r/record.json/x")], ONE, "cannot unpack"),
    ],
)  # fmt: skip
def test_a_hostile_archive_is_refused(tmp_path: Path, members, manifest, message: str) -> None:
    path = forge(tmp_path / "a.tar.gz", members, manifest)
    with pytest.raises(AlchemyError, match=message):
        unpack_archive(path, tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "new"]


def test_a_bomb_is_defused(tmp_path: Path) -> None:
    path = forge(tmp_path / "a.tar.gz", [member("r/record.json", data=b"0" * 2**24)], ONE)
    assert path.stat().st_size < 2**16
    with pytest.raises(AlchemyError, match=r"needs more than 1.0 MiB"):
        unpack_archive(path, tmp_path / "new", largest=2**20)


def test_leftovers_of_a_killed_import_are_removed_a_day_later(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.tar", [make(tmp_path / "records")])
    for name, age in ((".import-old", 100_000), (".import-new", 0)):
        (tmp_path / "to" / name / "r").mkdir(parents=True)
        os.utime(tmp_path / "to" / name, (time.time() - age,) * 2)
    (record,) = unpack_archive(tmp_path / "a.tar", tmp_path / "to").added
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == [".import-new", record.name]


def test_a_damaged_sparse_header_is_refused(tmp_path: Path) -> None:
    strange, data = member("a/record.json")
    strange.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    path = forge(tmp_path / "bad.tar", [(strange, data)])
    with pytest.raises(AlchemyError, match="is not a valid archive of records"):
        unpack_archive(path, tmp_path / "to")


def test_a_huge_header_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("r/record.json")
    info.type, info.size = tarfile.XHDTYPE, 2**30
    (tmp_path / "a.tar").write_bytes(info.tobuf() + b"\0" * 512)
    with pytest.raises(AlchemyError, match="a header that is too large"):
        unpack_archive(tmp_path / "a.tar", tmp_path / "new")


@pytest.mark.parametrize("name", ["r/x", "r/a/b/c.txt", "2026-01-01_00-00-00.000000/焦点", "r/..x", "r/a b"])
def test_plain_names_are_accepted(name: str) -> None:
    check_name(name)


@given(st.text(max_size=40))
def test_an_accepted_name_stays_inside(name: str) -> None:
    try:
        check_name(name)
    except BadArchive:
        return
    assert os.path.normpath(os.path.join("/room", name)) == f"/room/{name}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> bytes:
    folder = tmp_path_factory.mktemp("archive")
    write_archive(folder / "a.tar", [make(folder / "records")])
    return (folder / "a.tar").read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_a_damaged_archive_never_crashes(tmp_path_factory, archive: bytes, data) -> None:
    """Change some bytes, or cut it off: it is refused, or what is unpacked is as the manifest says."""
    folder = tmp_path_factory.mktemp("damaged")
    changed = bytearray(archive)
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(archive) - 1), st.integers(0, 255)), max_size=8)
    ):
        changed[place] = value
    cut = bytes(changed[: data.draw(st.integers(0, len(archive)))])
    (folder / "a.tar").write_bytes(gzip.compress(cut, 1) if data.draw(st.booleans()) else cut)
    try:
        unpack_archive(folder / "a.tar", folder / "new")
    except AlchemyError:
        assert list((folder / "new").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "new"]
