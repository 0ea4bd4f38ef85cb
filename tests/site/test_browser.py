"""The documentation site, built and opened in Chromium: `make browser` installs what it needs and runs it."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = [name for name in ("mkdocs", "material", "mkdocstrings", "playwright") if not importlib.util.find_spec(name)]
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; run `make browser`"),
]


class Html(HTMLParser):
    """Collect the links and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.comments: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        self.links += [value for key in ("href", "src") if (value := values.get(key))]

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


class Site(NamedTuple):
    folder: Path
    pages: dict[Path, Html]

    def inside(self, page: Path) -> Iterator[tuple[str, Path, str]]:
        """Return the links of a page to files of the site, each with its file and its anchor."""
        for link in self.pages[page].links:
            if not urlsplit(link).scheme:
                path, anchor = urldefrag(unquote(link))
                yield link, (page.parent / path).resolve() if path else page, anchor

    @property
    def written(self) -> list[Path]:
        """Return every page except copies of source files and the page for missing ones."""
        return [page for page in self.pages if "source" not in page.parts and page.name != "404.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site").resolve()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return Site(folder, {page: Html(page.read_text("utf-8")) for page in sorted(folder.rglob("*.html"))})


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


@pytest.fixture
def served(site: Site) -> Iterator[str]:
    """The address of the site on a local server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site.folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_link_leads_to_a_page_and_an_anchor(site: Site) -> None:
    count, broken = 0, []
    for page in site.pages:
        for link, file, anchor in site.inside(page) if page.name != "404.html" else ():
            count += 1
            html = site.pages.get(file)
            if not file.is_file() or (anchor and html and anchor not in html.anchors and not anchor.startswith("__")):
                broken.append((page.name, link))
    print(f"{len(site.pages)} pages, {len(site.written)} of them written or generated, {count} links")
    assert broken == []
    assert count > 10_000


def test_every_page_is_within_three_clicks_of_the_home_page(site: Site) -> None:
    reached = {site.folder / "index.html"}
    for _ in range(3):
        reached |= {file for page in reached for _, file, _ in site.inside(page) if file in site.pages}
    assert set(site.pages) - reached == {site.folder / "404.html"}


def test_no_page_shows_a_comment(site: Site) -> None:
    assert {page.name: html.comments for page, html in site.pages.items() if html.comments} == {}


def test_pages_load_without_errors_requests_or_overflow(site: Site, browser: Any) -> None:
    from playwright.sync_api import Error

    problems: list[tuple[str, str]] = []
    page = browser.new_page(viewport=WIDE)
    page.on("console", lambda line: problems.append((page.url, line.text)) if line.type == "error" else None)
    page.on("pageerror", lambda error: problems.append((page.url, str(error))))
    page.on("requestfailed", lambda request: problems.append((page.url, request.url)))
    page.on("request", lambda request: _check_local(request.url, problems))
    for file in site.written:
        page.goto(file.as_uri())
        for size in (WIDE, NARROW):
            page.set_viewport_size(size)
            try:
                page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth", timeout=2000)
            except Error:
                problems.append((page.url, f"scrolls sideways at {size['width']} px"))
    assert problems == []


def _check_local(url: str, problems: list[tuple[str, str]]) -> None:
    if urlsplit(url).scheme not in ("file", "data", "blob"):
        problems.append(("request", url))


@pytest.mark.parametrize(("system", "scheme"), [("light", "default"), ("dark", "slate")])
def test_colors_follow_the_system_and_can_be_switched(site: Site, browser: Any, system: str, scheme: str) -> None:
    page = browser.new_context(color_scheme=system, viewport=WIDE).new_page()
    page.goto((site.folder / "index.html").as_uri())
    seen = []
    for _ in range(3):
        seen.append(page.evaluate("document.body.dataset.mdColorScheme"))
        page.locator("label[for^=__palette]:visible").click()
    assert seen == [scheme, "default", "slate"]


QUERIES = [
    ("gradient accumulation", "training.html"),
    ("early stopping", "stopping.html"),
    ("BucketBatch", "api/alchemy.pipeline.itr.html"),
    ("续训", "tutorial.zh.html"),
    ("学习率", "tutorial.zh.html"),
]


@pytest.mark.parametrize("where", ["file", "server"])
@pytest.mark.parametrize(("query", "expected"), QUERIES)
def test_search_finds_the_page(site: Site, browser: Any, served: str, where: str, query: str, expected: str) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto((site.folder / "run.html").as_uri() if where == "file" else f"{served}/run.html")
    page.locator("input.md-search__input").click()
    page.keyboard.type(query)
    page.keyboard.press("End")  # typing Chinese characters sends no key release, which starts the search
    results = page.locator("a.md-search-result__link")
    results.first.wait_for(timeout=20_000)
    found = [link.get_attribute("href") for link in results.all()]
    assert any(expected in link.partition("?")[0] for link in found), found
    results.first.click()
    page.wait_for_url("**/*.html*")
    assert page.locator("article h1").count() == 1


def test_code_can_be_copied_but_output_is_not_offered(site: Site, browser: Any) -> None:
    page = browser.new_page(viewport=WIDE)
    page.goto((site.folder / "own-data.html").as_uri())
    page.locator("button[data-md-type=copy]").first.wait_for()
    assert page.locator(".output button[data-md-type=copy]").count() == 0
