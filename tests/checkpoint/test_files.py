"""Checkpoints on a failing disk: there is always a complete one, and older ones are not lost."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from alchemy.checkpoint.files import DISK, read, read_tensors, write
from alchemy.checkpoint.manifest import (
    MANIFEST,
    Manifest,
    checkpoints,
    clear_leftovers,
    free_name,
    newest_valid,
    read_manifest,
    verify,
)
from alchemy.checkpoint.state_tree import DTYPES
from alchemy.errors import AlchemyError
from tests.checkpoint.faults import FaultyDisk, PowerCut, files_of, is_exactly, same_bits, save, tensors_of
from tests.checkpoint.strategies import tensors


def costs() -> tuple[int, int]:
    """Return the operations and bytes of a successful save: faults must cover all of them."""
    disk = FaultyDisk()
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), 3, disk)
    return disk.calls, disk.written


CALLS, BYTES = costs()
FAULTS = st.fixed_dictionaries(
    {"power": st.booleans()}, optional={"call": st.integers(0, CALLS), "room": st.integers(0, BYTES)}
)
DAMAGES = st.sampled_from(["none", "truncate", "flip", "empty", "missing", "append"])
FILES = st.sampled_from(["state.json", "model.safetensors", "optim.safetensors", MANIFEST])


def damage(path: Path, how: str, place: int) -> None:
    data = path.read_bytes()
    place %= len(data)
    changed = {
        "none": data,
        "truncate": data[:place],
        "flip": data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :],
        "empty": b"",
        "append": data + b" ",
    }
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(changed[how])


def survive(fault: dict[str, Any], how: str, file: str, place: int) -> None:
    """Two saves and an interrupted third one; then the latest one is damaged."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        for update in (1, 2):
            save(state, update, FaultyDisk())
        disk = FaultyDisk(**fault)
        cut = False
        try:
            save(state, 3, disk)
        except (OSError, PowerCut):
            cut = True
        disk.lose_power()  # by now at the latest, complete checkpoints must be on the disk
        complete = [1, 2, 3] if disk.renamed else [1, 2]
        assert cut or disk.renamed
        assert [path.name for path in checkpoints(state)] == [f"u{update}" for update in complete]
        assert all(is_exactly(state / f"u{update}", update) for update in complete)
        damage(state / f"u{complete[-1]}" / file, how, place)
        expected = complete[-1] if how == "none" else complete[-2]
        newest, passed = newest_valid(state)
        assert newest == state / f"u{expected}"
        assert [sentence.split(":")[0] for sentence in passed] == (
            [] if how == "none" else [f"skipping state/u{complete[-1]}"]
        )
        clear_leftovers(state)
        assert sorted(path.name for path in state.iterdir()) == [f"u{update}" for update in complete]


@settings(max_examples=200)
@given(FAULTS, DAMAGES, FILES, st.integers(0, 10**6))
def test_whatever_fails_the_newest_complete_one_is_found(
    fault: dict[str, Any], how: str, file: str, place: int
) -> None:
    survive(fault, how, file, place)


@pytest.mark.slow
@settings(max_examples=1000)
@given(FAULTS, DAMAGES, FILES, st.integers(0, 10**6))
def test_a_thousand_failures(fault: dict[str, Any], how: str, file: str, place: int) -> None:
    survive(fault, how, file, place)


def test_the_faults_reach_every_operation(tmp_path: Path) -> None:
    for call in range(CALLS):  # all of them, not a sample
        broken = FaultyDisk(call=call)
        with pytest.raises(OSError, match="Input/output error"):
            save(tmp_path, 2, broken, name=f"u2-{call + 2}")
        assert (tmp_path / f"u2-{call + 2}").exists() == bool(broken.renamed)
    assert list(tmp_path.glob(".tmp-*")) == []


def test_any_tensors_can_be_read_by_safetensors(tmp_path: Path) -> None:
    @settings(max_examples=60)
    @given(st.dictionaries(st.text(min_size=1, max_size=5), tensors(), max_size=6))
    def check(content: dict[str, Tensor]) -> None:
        shutil.rmtree(tmp_path / "u1", ignore_errors=True)
        write(tmp_path / "u1", {"a.safetensors": content}, Manifest(update=1, epoch=0, step=0, time=""), FaultyDisk())
        found = load_file(tmp_path / "u1" / "a.safetensors")
        assert set(found) == set(content)
        assert all(same_bits(found[name], tensor) for name, tensor in content.items())

    check()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_of_number_is_kept(tmp_path: Path, dtype: torch.dtype) -> None:
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6).to(dtype)
    content = {"turned": whole.t(), "window": whole[1:3, 2:], "one": whole[0, 0], "all": whole}
    write(tmp_path / "u1", {"a.safetensors": content}, Manifest(update=1, epoch=0, step=0, time=""))
    found = read_tensors(tmp_path / "u1" / "a.safetensors")
    assert all(same_bits(found[name], tensor) for name, tensor in content.items())


def test_a_save_on_a_real_disk_is_valid_and_private_to_nobody(tmp_path: Path) -> None:
    folder = save(tmp_path / "state", 7, DISK)
    assert verify(folder) == ""
    assert is_exactly(folder, 7)
    assert (folder / "model.safetensors").stat().st_mode & 0o400
    assert read_manifest(folder).bytes == sum(file.stat().st_size for file in folder.iterdir() if file.name != MANIFEST)


def test_what_was_read_outlives_its_file(tmp_path: Path) -> None:
    folder = save(tmp_path, 7, FaultyDisk())
    found = read(folder)
    (folder / "model.safetensors").write_bytes(b"")
    shutil.rmtree(folder)
    assert same_bits(found["model.safetensors"]["weight"], tensors_of(7)["weight"])


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: (folder / MANIFEST).unlink(), "it has no manifest.json"),
        (lambda folder: (folder / MANIFEST).write_text("[]"), "invalid manifest.json: expected a JSON object"),
        (lambda folder: (folder / "state.json").unlink(), "state.json is missing"),
        (lambda folder: (folder / "state.json").write_text("{}"), "state.json has 2 bytes, expected 22"),
        (
            lambda folder: (folder / "state.json").write_text('{"parts":{"update":8}}'),
            "the content of state.json has changed: its hash does not match the manifest",
        ),
        (
            lambda folder: _edit(folder, update=8),
            "invalid manifest.json: its hash does not match its content",
        ),
        (
            lambda folder: _edit(folder, format=2),
            "invalid manifest.json: unsupported format 2, expected 1",
        ),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, spoil: Any, sentence: str) -> None:
    folder = save(tmp_path, 7, FaultyDisk())
    spoil(folder)
    assert verify(folder) == sentence


def _edit(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(content | changes))


def test_weights_alone_are_passed_over_by_a_resume_only(tmp_path: Path) -> None:
    save(tmp_path / "state", 1, FaultyDisk())
    manifest = Manifest(update=2, epoch=0, step=2, time="", kind="weights")
    write(tmp_path / "state" / "u2", files_of(2), manifest, FaultyDisk())
    newest, passed = newest_valid(tmp_path / "state")
    assert newest is not None
    assert newest.name == "u1"
    assert passed == ["skipping state/u2: it contains only weights"]
    assert newest_valid(tmp_path / "state", kind="") == (tmp_path / "state" / "u2", [])


def test_age_is_the_update_and_names_are_never_used_twice(tmp_path: Path) -> None:
    for name in ("u9", "u10", "u10-2", "u100", "u10-x", "best"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoints(tmp_path)] == ["u9", "u10", "u10-2", "u100"]
    assert [free_name(tmp_path, update) for update in (1, 9, 10)] == ["u1", "u9-2", "u10-3"]
    assert checkpoints(tmp_path / "nowhere") == []
    assert newest_valid(tmp_path / "nowhere") == (None, [])


def test_only_leftovers_are_cleared_and_an_interrupted_swap_is_undone(tmp_path: Path) -> None:
    for name in (".tmp-1-u3", ".best.old", "u1", "other", ".hidden"):
        (tmp_path / name).mkdir()
    # of a process whose id has been reused, as in a restarted container
    (tmp_path / f".last.{os.uname().nodename}-{os.getpid()}.x" / "old-0-last").mkdir(parents=True)
    assert clear_leftovers(tmp_path) == [".tmp-1-u3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "best", "last", "other", "u1"]


def test_a_folder_that_is_none_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match=r"cannot read the checkpoint .*: it has no manifest\.json"):
        read(tmp_path)
    (tmp_path / "x.safetensors").write_bytes(b"abc")
    with pytest.raises(AlchemyError, match=r"cannot read .*x\.safetensors"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(AlchemyError, match=r"y\.safetensors not found in"):
        read_tensors(tmp_path / "y.safetensors")
