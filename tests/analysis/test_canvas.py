"""A canvas: frames as text and as pictures, where they are shown, and bad input."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from alchemy import Canvas, History
from alchemy.analysis.canvas_text import draw_frame
from alchemy.analysis.drawings import build_curves, build_histograms, build_images, build_summary
from alchemy.analysis.screen import Screen
from alchemy.errors import AlchemyError

PLAIN = Screen(60, 24, color=False, unicode=True, live=False)
LIVE = Screen(60, 24, color=True, unicode=True, live=True)


@pytest.fixture
def history() -> History:
    history = History()
    for step in range(20):
        history.log(step, loss=1 / (step + 1), acc=step / 20)
    history.log(19, image=np.arange(64).reshape(8, 8), weights=np.linspace(-1, 1, 100))
    return history


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_block_is_one_frame_and_replaces_the_previous_one(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "60", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    with contextlib.redirect_stdout(Terminal()) as terminal:
        canvas = Canvas()
        for _ in range(2):
            with canvas:
                canvas.draw_plot([history["loss"], history["acc"]], labels=["Loss", "Accuracy"], ylabel="values")
                canvas.draw_summary(history, title="My run")
    begin, *frames = terminal.getvalue().split("\x1b[H")
    assert begin == "\n" * 24 and len(frames) == 2  # the first frame scrolls
    for frame in frames:
        assert frame.startswith("My run\x1b[K\nstep 19  loss 0.05  acc 0.95  time 0 s\x1b[K\n")
        assert "Loss: last 0.05" in frame and "Accuracy: last 0.95" in frame and frame.endswith("\x1b[J")
        assert frame.count("\n") < 24


def test_a_frame_of_a_block_that_fails_is_not_shown(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    canvas = Canvas()
    with pytest.raises(ZeroDivisionError, match="division"), canvas:
        canvas.draw_plot(history["loss"])
        _ = 1 / 0
    del canvas
    gc.collect()
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_the_last_frame_at_the_end(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    canvas = Canvas()
    canvas.draw_plot(history["acc"])
    canvas.draw_plot(history["loss"])
    assert capsys.readouterr().out == ""
    del canvas
    gc.collect()
    out = capsys.readouterr().out
    assert out.startswith("loss\n") and "acc" not in out and "\x1b" not in out


def test_plots_of_a_terminal_share_its_rows(history: History) -> None:
    frame = [build_curves([history["loss"]], None, "")] * 3
    assert len(draw_frame(frame[:1], LIVE)) <= 23
    lines = draw_frame(frame, LIVE)
    assert len(lines) == 23 and lines[-1] == "7 more rows need a larger terminal"
    assert len(draw_frame(frame, PLAIN)) == 3 * 20 + 2


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (np.array([[0, 255], [0, 255]], np.uint8), "    ████"),
        (np.array([[[0.0, 1.0], [0.0, 1.0]]]), "    ████"),  # [C, H, W]
        (torch.tensor([[-5.0, 5.0], [-5.0, 5.0]]), "    ████"),
        (np.array([[math.nan, 1.0], [math.inf, 1.0]]), "    ████"),
        (np.full((2, 2), math.nan), ""),
        (np.array([[True, False]] * 2), "████"),
    ],
)
def test_images_are_shades_without_colors(image: object, expected: str) -> None:
    title, *rows = draw_frame([build_images(image, 5, "")], PLAIN)
    assert title == "image" and len(rows) == 4 and rows[0] == expected


@pytest.mark.parametrize(
    ("colorterm", "code"), [("truecolor", "\x1b[38;2;255;0;0;48;2;0;0;255m▀"), ("", "\x1b[38;5;196;48;5;21m▀")]
)
def test_images_are_half_blocks_with_colors(monkeypatch: pytest.MonkeyPatch, colorterm: str, code: str) -> None:
    monkeypatch.setenv("COLORTERM", colorterm)
    image = np.array([[[255, 0, 0]], [[0, 0, 255]]], np.uint8)
    assert code in "".join(draw_frame([build_images(np.repeat(image, 60, axis=1), 1, "")], LIVE))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (37, 91), (1000, 1000)])
def test_images_of_every_size_fit(size: tuple[int, int]) -> None:
    lines = draw_frame([build_images(np.zeros((4, *size, 3), np.uint8) + 255, 3, "")], PLAIN)
    assert max(map(len, lines)) <= 60 and len(lines) <= 17


def test_a_series_has_one_histogram_of_its_numbers_or_several_of_its_arrays(history: History) -> None:
    for step in range(6):
        history.log(step, weights=np.arange(5) * step)
    numbers, arrays = (build_histograms(history[name], "").plot.panels[0] for name in ("acc", "weights"))
    assert [line.label for line in numbers.lines] == ["20 values, mean 0.475, std 0.2883"]
    assert [line.label.partition(":")[0] for line in arrays.lines] == ["step 19", "step 5", "step 4", "step 3"]
    assert [bool(line.low) for line in arrays.lines] == [True, False, False, False]


def test_a_long_summary_is_cut(history: History) -> None:
    history.log(20, **{f"metric{number}": number for number in range(99)})
    lines = build_summary(history, "title").lines
    assert len(lines) == 4 and lines[-1].endswith(" ...") and max(map(len, lines)) <= 88


def test_a_histogram_tells_what_it_leaves_out() -> None:
    values = [1.7e308, 2.0, 2.0, math.nan, math.inf, -1.7e308]
    lines = draw_frame([build_histograms(np.array(values), "grad\x1b[2J")], PLAIN)
    assert lines[0] == "grad\\u001b[2J" and "6 values, mean 0, std 1.202e+308, 2 not finite" in lines[-1]
    assert "2 not finite" in "".join(draw_frame([build_histograms([math.nan, math.nan], "")], PLAIN))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h: build_curves([], None, ""), "there is nothing to draw"),
        (lambda h: build_curves([h["loss"]], ["a", "b"], ""), "2 labels for 1 metrics"),
        (
            lambda h: build_curves([h["image"]], None, ""),
            "'image' has arrays, not only numbers; draw it with draw_image",
        ),
        (lambda h: build_images(h["loss"], 5, ""), r"not an image: expected an image .* got \(\)"),
        (lambda h: build_images(np.zeros((5, 6, 7)), 5, ""), r"not an image: .* got \(5, 6, 7\)"),
        (lambda h: build_images(np.zeros((0, 6)), 5, ""), "not an image"),
        (lambda h: build_images("x", 5, ""), "not an image: expected an image"),
        (lambda h: build_histograms(["a"], "w"), "cannot draw a histogram of 'w'"),
    ],
)
def test_bad_input_is_one_error(history: History, call, message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        call(history)


def test_curves_without_finite_values_and_empty_histories_are_drawn() -> None:
    history = History()
    assert build_summary(history, "").lines == ["nothing has been logged yet"]
    history.log(0, loss=math.nan)
    history.log(1, loss=-math.inf)
    assert "loss: no finite values" in draw_frame([build_curves([history["loss"]], None, "")], PLAIN)[-1]


def test_a_million_points_are_drawn_within_a_second() -> None:
    history = History()
    history._values["loss"] = dict(enumerate(np.random.default_rng(0).random(10**6).tolist()))
    begin = time.process_time()
    draw_frame([build_curves([history["loss"]], None, "")], LIVE)
    assert time.process_time() - begin < 1


def test_a_frame_is_saved_as_a_picture(history: History, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `score` is not installed")
    canvas = Canvas()
    with pytest.raises(AlchemyError, match="the canvas is empty"):
        canvas.save(tmp_path / "a.png")
    with canvas:
        canvas.draw_plot(history["loss"], ylabel="$x")
        canvas.draw_image(history["image"])
        canvas.draw_hist(history["weights"])
        canvas.draw_summary(history)
    canvas.save(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(AlchemyError, match=r"cannot write .*no/a.png: No such file"):
        canvas.save(tmp_path / "no/a.png")
