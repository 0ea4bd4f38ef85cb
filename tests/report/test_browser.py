"""A report, opened in Chromium: nothing fails, nothing is loaded, nothing in a record runs; charts and sliders work."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.records.readme import set_purpose
from tests.analysis.fake_curves import change_info, write_code, write_curves, write_environment
from tests.report.fake_media import build_png, write_all_kinds, write_media

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 390, "height": 844}}
NASTY = '</script><script>document.title="run"</script><img src="https://example.com/x" onerror="document.title=1">'

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not importlib.util.find_spec("playwright"), reason="not installed: playwright; `make browser`"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for number, (lr, seed) in enumerate([(0.1, 1), (0.1, 2), (0.2, 1)]):
        curves = {
            "train/loss": [1 / (place + 1) for place in range(3000)],
            "dev/f1": [place % 100 / 100 if place != 50 else float("nan") for place in range(3000)],
            f"dev/{NASTY}": [0.5] * 3000,
        }
        record = write_curves(folder / "records", number, curves, {"optim": {"lr": lr}, "x": NASTY}, seed=seed)
        change_info(record, fold_hash=f"{lr}")
        write_code(record, {"src/a.py": f"lr = {lr}  # {NASTY}\n"})
        write_environment(record)
        set_purpose(record, NASTY)
        write_all_kinds(record)
        write_media(record, "text", NASTY, 10, NASTY)
        write_media(record, "table", f"{NASTY}/hardest", 10, {"columns": [NASTY], "rows": [[NASTY]]})
        write_media(record, "image", NASTY, 10, build_png(8, 8), caption=NASTY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["report", "tag:demo", "--title", NASTY]) == 0
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        except Error as error:
            pytest.skip(f"chromium does not start, run `make browser`: {error}")
        yield started
        started.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_complete_and_nothing_in_it_runs_or_loads(
    report: Path, browser: Any, size: str, scheme: str
) -> None:
    page = browser.new_page(viewport=SIZES[size], color_scheme=scheme)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: problems.append(request.url) if not request.url.startswith("data:image/png") else 0
    )
    page.goto(report.as_uri())
    page.wait_for_selector("footer")
    assert [text for text in problems if text not in (report.as_uri(), "data:,")] == []
    assert page.title() == NASTY and page.inner_text("h1") == NASTY
    titles = page.eval_on_selector_all("h2", "nodes => nodes.map(node => node.textContent)")
    assert titles[:2] == ["Curves", "All numbers"] and {"Attention", "Distributions", "Images", "Code"} <= {*titles}
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"]
    assert page.locator("main script, main iframe, main a:not([href^='#'])").count() == 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    page.close()


def test_charts_show_values_and_zoom(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport=SIZES["wide"])
    page.goto(report.as_uri())
    chart = page.locator(".chart").first
    plot = chart.locator("svg.plot")
    box = plot.bounding_box()
    assert box is not None
    middle, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = chart.locator(".legend").inner_text()
    page.mouse.move(middle, height)
    assert chart.locator("header .soft").inner_text().startswith("update 1,")
    assert chart.locator(".legend").inner_text() != before and "±" in before
    page.mouse.down()
    page.mouse.move(middle + 100, height, steps=3)
    page.mouse.up()
    narrow = plot.locator("path.path").first.get_attribute("d")
    page.get_by_role("button", name="Reset zoom").click()
    assert plot.locator("path.path").first.get_attribute("d") != narrow
    page.get_by_label("Logarithmic y").check()
    page.locator(".bar input[type=range]").fill("0.9")
    assert page.locator(".ghost").count() > 0
    plot.focus()
    page.keyboard.press("ArrowLeft")
    assert chart.locator("header .soft").inner_text().startswith("update 2,99")
    assert "NaN" not in page.evaluate(
        "[...document.querySelectorAll('path')].map(node => node.getAttribute('d')).join()"
    )
    page.close()


def test_the_x_axis_can_be_epochs_or_run_time(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport=SIZES["wide"])
    page.goto(report.as_uri())
    chart = page.locator(".chart").first
    axes = {"update": r"update 1,\d{3}", "epoch": r"epoch [\d.]+", "time": r"1\d\.\d minutes"}
    for place, (axis, text) in enumerate(axes.items()):
        page.get_by_label("X-axis").select_option(axis)
        chart.locator("svg.plot").hover(position={"x": 290 + place, "y": 100})
        assert re.fullmatch(text, chart.locator("header .soft").inner_text())
    page.close()


def test_sliders_and_heads_change_what_is_shown(report: Path, browser: Any) -> None:
    page = browser.new_page(viewport=SIZES["wide"])
    page.goto(report.as_uri())
    figure = page.locator("#confusion figure").first
    assert figure.locator("output").inner_text() == "update 50" and "41" in figure.inner_text()
    figure.locator("input").fill("3")
    assert figure.locator("output").inner_text() == "update 200" and "44" in figure.inner_text()
    figure.locator("input").fill("0")
    assert figure.locator("output").inner_text() == "update 50" and "41" in figure.inner_text()
    cell = page.locator("#attention td").nth(18)
    before = cell.get_attribute("title")
    page.locator("#attention select").first.select_option("2")
    assert page.locator("#attention td").nth(18).get_attribute("title") != before
    assert page.locator("#images img").first.evaluate("node => node.naturalWidth") == 48
    page.close()
