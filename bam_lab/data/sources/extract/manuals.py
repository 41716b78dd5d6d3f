"""Manuals: pages of HTML, Markdown and reStructuredText."""

import re
from html.parser import HTMLParser

from bam_lab.data.sources import archives
from bam_lab.data.sources.extract.text import Documents, Members, decode

_SKIPPED = {"script", "style", "head", "nav", "header", "footer", "button", "svg", "form"}
_BLOCKS = {
    "p", "div", "section", "article", "table", "tr", "ul", "ol", "dl", "dt", "dd", "li", "br",
    "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "hr",
}  # fmt: skip
_BARE_INDEX = re.compile(r"(^|/)(genindex|search|searchindex|modindex|py-modindex)[^/]*$")


def html_pages(members: Members) -> Documents:
    """Yield the text of HTML pages, also gzipped ones, without navigation and indices."""
    for name, content in members:
        if _BARE_INDEX.search(name):
            continue
        page = _Page()
        page.feed(decode(archives.gunzip(name, content) if name.endswith(".gz") else content))
        page.close()
        yield name, page.text()


class _Page(HTMLParser):
    """Gather the text of a page; inside `pre` as it stands, elsewhere blanks run together."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._skipped: list[str] = []
        self._pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        classes = dict(attrs).get("class") or ""
        side = tag == "div" and re.search(r"sphinxsidebar|related|footer|nav-panel", classes)
        if self._skipped:
            if tag == self._skipped[0]:
                self._skipped.append(tag)
        elif tag in _SKIPPED or side:
            self._skipped.append(tag)
        elif tag == "pre":
            self._pre += 1
            self._parts.append("\n\n")
        elif tag in _BLOCKS:
            self._parts.append("\n" if tag in ("br", "tr", "li", "dt", "dd") else "\n\n")

    def handle_endtag(self, tag: str) -> None:
        if self._skipped:
            if tag == self._skipped[0]:
                self._skipped.pop()
        elif tag == "pre":
            self._pre = max(self._pre - 1, 0)
            self._parts.append("\n\n")
        elif tag in _BLOCKS:
            self._parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._parts.append(data if self._pre else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        text = "".join(self._parts).replace("\xa0", " ").replace("\xb6", "")
        return re.sub(r"\n\s*\n", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def markdown_pages(members: Members) -> Documents:
    """Yield pages of Markdown or reStructuredText whole, front matter and comments cut off."""
    for name, content in members:
        text = decode(archives.gunzip(name, content) if name.endswith(".gz") else content)
        text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
        yield name, re.sub(r"<!--.*?-->", "", text, flags=re.S)
