"""The README of a record: its parts survive the edits of each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.records.readme import Readme, add_note, parse, read_readme, set_purpose, set_tags

LINES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
PLAIN = LINES.filter(lambda line: not line.startswith(("#", "Tags:", "-", "Variant")))
TAGS = st.from_regex(r"[\w.+-]{1,10}", fullmatch=True)
EXTRA = "## Results\n\n| a | b |\n|---|---|\n| 1 | 2 |"


@settings(max_examples=30)
@given(purpose=PLAIN, tags=st.lists(TAGS, unique=True, max_size=4), notes=st.lists(PLAIN, max_size=3))
def test_parts_are_read_as_they_were_written(tmp_path_factory, purpose, tags, notes) -> None:
    record = tmp_path_factory.mktemp("record")
    (record / "README.md").write_text(f"# title\n\nold\n\n{EXTRA}\n", "utf-8")
    for note in notes:
        add_note(record, note)
    set_tags(record, tags)
    set_purpose(record, purpose)
    found = read_readme(record)
    assert (found.title, found.purpose, found.tags) == ("title", purpose, tuple(tags))
    assert [note.partition(": ")[2] for note in found.notes] == notes
    assert EXTRA in (record / "README.md").read_text("utf-8")


@given(st.text(max_size=200))
def test_any_text_is_parsed(text) -> None:
    assert isinstance(parse(text), Readme)


def test_tags_are_added_and_removed(tmp_path: Path) -> None:
    assert set_tags(tmp_path, ["a", "b", "a"]) == ("a", "b")
    assert set_tags(tmp_path, ["c"], remove=["a", "none"]) == ("b", "c")
    assert set_tags(tmp_path, remove=["b", "c"]) == ()
    assert read_readme(tmp_path).tags == ()


@pytest.mark.parametrize("tag", ["", "two words", "a,b", "key:value", "a\x1b[31m"])
def test_a_tag_is_one_word(tmp_path: Path, tag: str) -> None:
    with pytest.raises(AlchemyError, match="invalid tag"):
        set_tags(tmp_path, [tag])


def test_a_note_may_have_several_lines(tmp_path: Path) -> None:
    add_note(tmp_path, "one\n## two\n- three")
    add_note(tmp_path, "four")
    first, second = read_readme(tmp_path).notes
    assert first.endswith(": one\n## two\n- three")
    assert second.endswith(": four")


def test_a_purpose_cannot_end_early(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="a purpose cannot contain headings"):
        set_purpose(tmp_path, "x\n# y")


def test_what_cannot_be_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"# \xff\n")
    with pytest.raises(AlchemyError, match=r"cannot edit .*README\.md"):
        add_note(tmp_path, "x")
    assert (tmp_path / "README.md").read_bytes() == b"# \xff\n"


def test_a_link_that_leads_out_of_the_record_is_not_followed(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    (tmp_path / "secret").write_text("# secret\n")
    (record / "README.md").symlink_to(tmp_path / "secret")
    assert read_readme(record) == Readme()
    with pytest.raises(AlchemyError, match="points outside"):
        set_tags(record, ["x"])
    assert (tmp_path / "secret").read_text() == "# secret\n"


def test_a_readme_never_becomes_too_large_to_read(tmp_path: Path) -> None:
    set_purpose(tmp_path, "x" * 10**6)
    with pytest.raises(AlchemyError, match="would become too large"):
        add_note(tmp_path, "y" * 10**5)
    assert len(read_readme(tmp_path).purpose) == 10**6
