"""A canvas and a progress bar in a notebook, which a real kernel executes."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

SETUP = """
from alchemy import Canvas, History
from alchemy.progress import Bar, Terminal
history, canvas = History(), Canvas()
"""
LOOP = """
import numpy as np
console = Terminal()
bar = Bar("epoch 1/1", 3, console)
for step in range(3):
    history.log(step, loss=1 / (step + 1), weights=np.arange(8) * step, image=np.eye(8) * step)
    bar.step()
    bar.show()
    with canvas:
        canvas.draw_summary(history, title="three steps")
        canvas.draw_plot([history["loss"]], ylabel="loss")
        canvas.draw_image(history["image"])
        canvas.draw_hist(history["weights"])
"""


@pytest.mark.slow
def test_a_notebook_updates_one_picture_and_one_bar(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(source) for source in (SETUP, LOOP, LOOP)]  # the loop is executed again
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])})
    assert notebook.cells[0].outputs == []
    for cell in notebook.cells[1:]:
        bar, picture = cell.outputs
        assert "3/3" in bar.data["text/plain"]
        assert picture.data["text/plain"] == "summary, loss, image, weights"
        assert picture.metadata["image/png"] == {"width": 720}
        data = base64.b64decode(picture.data["image/png"])
        assert data.startswith(b"\x89PNG") and len(data) > 10_000
        (tmp_path / "picture.png").write_bytes(data)
