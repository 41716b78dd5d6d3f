"""Manuals: pages of HTML, and descriptions of programming interfaces."""

import re
from html.parser import HTMLParser

from bam_lab.data.sources import archives
from bam_lab.data.sources.extract.text import Documents, Members, decode, load, pieces, plain

_SKIPPED = {"script", "style", "head", "nav", "header", "footer", "button", "svg", "form"}
_BLOCKS = {
    "p", "div", "section", "article", "table", "tr", "ul", "ol", "dl", "dt", "dd", "li", "br",
    "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "hr",
}  # fmt: skip
_BARE_INDEX = re.compile(
    r"(^|/)(genindex|search|modindex|py-modindex|index_|[^/]*-Index\.)[^/]*$|(^|/)chapInd"
)
_TURNING = re.compile(r"^ ?(Goto Chapter:|\[?Top of Book\]?|(Next|Previous|Up): ).*\n?", flags=re.M)


def html_pages(members: Members) -> Documents:
    """Yield the text of HTML pages, also gzipped ones, without navigation; long ones in pieces."""
    for name, content in members:
        if _BARE_INDEX.search(name):
            continue
        page = _Page()
        page.feed(decode(archives.gunzip(name, content) if name.endswith(".gz") else content))
        page.close()
        yield from pieces(name, _TURNING.sub("", page.text()).strip())


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


def api_manuals(members: Members) -> Documents:
    """Yield the documentation in botocore's service descriptions, HTML removed.

    A document is a service, an operation, or a structure with its fields.
    """
    for name, content in members:
        service = load(name, archives.gunzip(name, content))
        title = service["metadata"].get("serviceFullName", "")
        yield name, f"{title}\n\n{plain(service.get('documentation') or '')}"
        for kind in ("operations", "shapes"):
            for key, entry in service.get(kind, {}).items():
                blocks = [key, plain(entry.get("documentation") or "")]
                for field, value in entry.get("members", {}).items():
                    if text := plain(value.get("documentation") or ""):
                        blocks.append(f"{field}: {text}")
                if len(blocks) > 2 or blocks[1]:
                    yield f"{name}#{kind}.{key}", "\n\n".join(filter(None, blocks))
