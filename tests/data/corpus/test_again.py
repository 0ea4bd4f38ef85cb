"""Rebuilding a corpus, concurrent builds, and killed builds: all or nothing."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alchemy.data.corpus import text_sources
from alchemy.data.corpus.build import build
from alchemy.data.corpus.mapped_corpus import Corpus
from alchemy.data.corpus.recipe import Recipe
from alchemy.errors import AlchemyError
from alchemy.text import Words
from tests.data.corpus.texts import TEXT, files_below, one, texts, written


def test_a_file_that_becomes_shorter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_sources, "PIECE_BYTES", 10)
    text = written(tmp_path / "t.txt", TEXT * 20)
    with pytest.raises(AlchemyError, match="changed while it was being read"):
        build(Recipe(tmp_path / "c", {"": [text]}), on_part=lambda part: os.truncate(text, 30))


def test_a_file_that_is_written_over_and_set_back_in_time_is_refused(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    times = text.stat().st_atime_ns, text.stat().st_mtime_ns

    def change(part: Any) -> None:
        text.write_text(text.read_text().upper())
        os.utime(text, ns=times)

    with pytest.raises(AlchemyError, match="changed while it was being read"):
        build(Recipe(tmp_path / "c", {"": [text]}), on_part=change)


def test_nothing_is_done_when_nothing_has_changed(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    recipe = Recipe(tmp_path / "c", {"": [text]})
    seen: list[Any] = []
    first = build(recipe, on_part=seen.append)
    assert (build(recipe, on_part=seen.append), len(seen)) == (first, 1)
    build(recipe, force=True, on_part=seen.append)
    build(Recipe(tmp_path / "c", {"": [text]}, min_frequency=2), on_part=seen.append)
    written(text, [*TEXT, "more"])
    build(Recipe(tmp_path / "c", {"": [text]}, min_frequency=2), on_part=seen.append)
    assert len(seen) == 4
    (tmp_path / "c.bin").write_bytes(b"")
    build(Recipe(tmp_path / "c", {"": [text]}, min_frequency=2), on_part=seen.append)
    assert len(seen) == 5
    shutil.rmtree(tmp_path / "c.tokenizer")
    build(Recipe(tmp_path / "c", {"": [text]}, min_frequency=2), on_part=seen.append)
    assert len(seen) == 6
    assert len(Corpus(tmp_path / "c")) == len(TEXT) + 1


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)

    def change(part: Any) -> None:
        written(text, [*TEXT, "more"])

    with pytest.raises(
        AlchemyError, match=r"t\.txt changed while it was being read; build again when the file is complete"
    ):
        build(Recipe(tmp_path / "out" / "c", {"": [text]}), on_part=change)
    assert files_below(tmp_path / "out") == {}


def test_a_tokenizer_without_an_end_is_refused_unless_none_is_asked_for(tmp_path: Path) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    Words.train(TEXT, specials={"unk": "<unk>"}).save(tmp_path / "w")
    with pytest.raises(AlchemyError, match="has no end-of-sentence token; build with --no-eos"):
        one(tmp_path / "c", text, tokenizer={"": tmp_path / "w"})
    assert texts(one(tmp_path / "c", text, tokenizer={"": tmp_path / "w"}, eos=False)) == TEXT


@pytest.mark.parametrize("side", ["", "en"])
def test_only_one_process_builds_a_name(tmp_path: Path, side: str) -> None:
    text = written(tmp_path / "t.txt", TEXT)
    told: list[Any] = []

    def second(part: Any) -> None:
        process = multiprocessing.get_context("fork").Process(target=one, args=(recipe.name(side), text))
        process.start()
        process.join()
        told.append(process.exitcode)

    recipe = Recipe(tmp_path / "c", {side: [text]})
    build(recipe, on_part=second)
    assert told == [1]  # rejected
    assert texts(Corpus(recipe.name(side))) == TEXT


BUILDER = """
import sys
from pathlib import Path
from alchemy.data.corpus import sources
from alchemy.data.corpus.build import build
from alchemy.data.corpus.recipe import Recipe
sources.PIECE_BYTES = 2000
print("ready", flush=True)
build(Recipe(Path(sys.argv[1]), {"en": [sys.argv[2]], "de": [sys.argv[3]]}), workers=2, force=True)
"""


@pytest.mark.slow
def test_a_build_that_is_killed_leaves_the_whole_or_nothing(tmp_path: Path) -> None:
    """60 kills at random moments, of the whole build or only of its main process; the next build recovers."""
    draw = random.Random(0)
    lines = [" ".join(draw.choices(TEXT[0].split() + TEXT[4].split(), k=9)) for _ in range(3000)]
    sides = {side: [written(tmp_path / f"t.{side}", lines[::step])] for side, step in (("en", 1), ("de", -1))}
    out = tmp_path / "c" / "train"
    whole = build(Recipe(out, sides))
    files = files_below(tmp_path / "c")
    begin = time.monotonic()
    build(Recipe(out, sides), workers=2, force=True)
    seconds = time.monotonic() - begin
    for number in range(60):
        command = [sys.executable, "-c", BUILDER, str(out), *(str(paths[0]) for paths in sides.values())]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0, 1.2 * seconds))  # on a busy machine, most kills come early; nothing depends on it
        (os.killpg if number % 2 else os.kill)(process.pid, signal.SIGKILL)
        assert process.wait() in (0, -signal.SIGKILL)  # otherwise something else ended it
        process.stdout.close()
        for side in sides:
            with contextlib.suppress(AlchemyError):  # there is none
                corpus = Corpus(out.with_name(f"train.{side}"))
                assert np.array_equal(corpus.ids, np.frombuffer(files[f"train.{side}.bin"], corpus.ids.dtype))
    assert build(Recipe(out, sides), workers=2) == whole
    assert files_below(tmp_path / "c") == files
