"""Build the navigation of the site, and convert Markdown of the repository to Markdown of the site.

docs/index.md is the table of contents: each section is a group of the navigation, and the first link of each table row
is a page of that group. Files outside docs/ that a page links to become pages too: a few documents such as the
changelog (DOCUMENTS), and all other files as highlighted source.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
# documents outside docs/, and their pages on the site
DOCUMENTS = {
    "README.md": "readme.md",
    "README.zh.md": "readme.zh.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "recipes/README.md": "recipes-readme.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "bash", ".md": "markdown", ".yml": "yaml"}

_BLOCK = re.compile(r"^(`{3,})[^\n]*\n.*?^\1$", re.DOTALL | re.MULTILINE)
_OUTPUT = re.compile(r"<!-- output -->\n```\w*$", re.MULTILINE)
_FILE = re.compile(r"(?:#|//) file: (\S+)\n")
# inline code is kept, comments are removed, links are rewritten
_INLINE = re.compile(
    r"(?P<code>(?P<marks>`+)(?!`).+?(?<!`)(?P=marks)(?!`))"
    r"|(?P<comment><!--.*?-->\n?)"
    r"|(?<=\]\()(?!\w+:|#)(?P<link>[^)\s]+)(?=\))",
    re.DOTALL,
)


def navigation() -> list[dict[str, object]]:
    """Return the sections of docs/index.md with their pages, in the form of `nav` in mkdocs.yml."""
    text = (ROOT / DOCS / "index.md").read_text("utf-8")
    found: list[dict[str, object]] = [{"Home": "index.md"}]
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| \[([^]]+)\]\(([^)#]+)\) \|", section, re.MULTILINE)
        if rows:
            pages = [{title.replace("`", ""): site_path(posixpath.normpath(DOCS + link))} for title, link in rows]
            found.append({section.partition("\n")[0].strip(): pages})
    return found


def list_pages(nav: object) -> Iterator[str]:
    """Yield the pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for value in nav.values():
            yield from list_pages(value)
    elif isinstance(nav, list):
        for value in nav:
            yield from list_pages(value)


def site_path(path: str) -> str:
    """Return the page of the site for a path of the repository.

    >>> site_path("docs/run.md"), site_path("CHANGELOG.md"), site_path("alchemy/loop.py"), site_path("tests/resume")
    ('run.md', 'changelog.md', 'source/alchemy/loop.py.md', 'source/tests/resume.md')
    """
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return f"source/{'/'.join(piece.lstrip('.') for piece in path.split('/'))}.md"  # MkDocs skips hidden files


def repository_path(page: str) -> str:
    """Return the path in the repository of a page in docs/ or in DOCUMENTS: the inverse of `site_path`."""
    return {site: path for path, site in DOCUMENTS.items()}.get(page, DOCS + page)


def sources() -> dict[str, str]:
    """Return the files and folders outside docs/ that documents link to, by their pages."""
    found: dict[str, str] = {}
    for document in (*DOCUMENTS, *(f"{DOCS}{file.name}" for file in (ROOT / DOCS).glob("*.md"))):
        for path in _targets(document, (ROOT / document).read_text("utf-8")):
            if not path.startswith(DOCS) and path not in DOCUMENTS:
                found[site_path(path)] = path
    for path in list(found.values()):  # readers can open the files of a folder
        if (ROOT / path).is_dir():
            found |= {site_path(child): child for child in _children(path)}
    return dict(sorted(found.items()))


def source_markdown(path: str) -> str:
    """Return the page of a source file, or of a folder with a list of its files."""
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n# `{path}`\n\n"
    if (ROOT / path).is_dir():
        here = posixpath.dirname(site_path(path))
        rows = [f"- [`{posixpath.basename(child)}`]({_relative(site_path(child), here)})" for child in _children(path)]
        return head + "\n".join(rows) + "\n"
    text = (ROOT / path).read_text("utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    fence = "`" * (3 + max((len(run) for run in re.findall(r"^`+", text, re.MULTILINE)), default=0))
    return f'{head}{fence}{language} linenums="1"\n{text.rstrip()}\n{fence}\n'


def site_markdown(text: str, document: str) -> str:
    """Convert a document of the repository: rewrite links and code blocks, remove comments."""
    here = posixpath.dirname(site_path(document))
    text = _OUTPUT.sub("```{ .text .output .no-copy }", text)
    return "".join(_block(piece) if is_block else _prose(piece, document, here) for is_block, piece in _split(text))


def _split(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the pieces of a document: code blocks (True), and the text between them."""
    place = 0
    for match in _BLOCK.finditer(text):
        yield False, text[place : match.start()]
        yield True, match[0]
        place = match.end()
    yield False, text[place:]


def _block(text: str) -> str:
    """Use the first line `# file: NAME` of a code block as its title."""
    head, _, body = text.partition("\n")
    name = _FILE.match(body)
    if name is None:
        return text
    return f'{head} title="{name[1]}"\n{body[name.end() :]}'


def _prose(text: str, document: str, here: str) -> str:
    def rewrite(match: re.Match[str]) -> str:
        if match["link"] is None:
            return (match["code"] or "").replace("\\|", "|")  # GitHub requires the escape in tables
        path, anchor = _target(document, match["link"])
        return _relative(site_path(path), here) + anchor

    return _INLINE.sub(rewrite, text)


def _target(document: str, link: str) -> tuple[str, str]:
    """Return the path in the repository that a link points to, and its anchor."""
    path, mark, anchor = link.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), path)), mark + anchor


def _targets(document: str, text: str) -> Iterator[str]:
    for is_block, piece in _split(text):
        for match in () if is_block else _INLINE.finditer(piece):
            if match["link"] is not None:
                yield _target(document, match["link"])[0]


def _children(folder: str) -> list[str]:
    """Return the text files below a folder."""
    found = []
    for place, folders, files in os.walk(ROOT / folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        found += [Path(place, name) for name in sorted(files) if Path(name).suffix in LANGUAGES]
    return [file.relative_to(ROOT).as_posix() for file in found]


def _relative(path: str, start: str) -> str:
    return posixpath.relpath(path, start or ".")
