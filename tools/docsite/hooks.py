"""MkDocs hooks: see pages.py for the pages, reference.py for the API reference."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.docsite import pages, reference

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

DIAGRAMS = pages.ROOT / "build" / "diagrams"
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/index.md, and add the API reference."""
    api = [{page.removeprefix("alchemy."): f"api/{page}.md"} for page in reference.names()]
    nav = pages.navigation()
    place = 1 + next(number for number, group in enumerate(nav) if "Reference" in group)
    config.nav = [*nav[:place], {"API": ["api/index.md", *api]}, *nav[place:]]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    names = reference.names()
    made = {f"api/{page}.md": reference.markdown(page, rows) for page, rows in names.items()}
    made["api/index.md"] = reference.overview(names)
    made |= {page: pages.source_markdown(path) for page, path in pages.sources().items()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    for path, page in pages.DOCUMENTS.items():
        files.append(File.generated(config, page, abs_src_path=str(pages.ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links and code blocks of the documents, and draw their diagrams."""
    if page.file.src_uri.startswith(("api/", "source/")):
        return markdown
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]
    text = pages.site_markdown(markdown, pages.repository_path(page.file.src_uri))
    return _MERMAID.sub(lambda match: f'<div class="diagram" markdown="0">{_draw_diagram(match[1])}</div>', text)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Set the language of Chinese pages."""
    return output.replace('<html lang="en"', '<html lang="zh"', 1) if ".zh." in page.file.src_uri else output


def _draw_diagram(source: str) -> str:
    """Return a Mermaid diagram as SVG, cached in build/: drawing takes seconds."""
    name = hashlib.sha256(source.encode()).hexdigest()[:16]
    file = DIAGRAMS / f"{name}.svg"
    if not file.exists():
        import mermaidx

        svg = mermaidx.render(source).svg()
        DIAGRAMS.mkdir(parents=True, exist_ok=True)
        file.write_text(svg.replace("my-svg", f"diagram-{name}"), "utf-8")
    return file.read_text("utf-8")
