"""Law: licences, notices, articles of regulations."""

import re

from bam_lab.data.sources.extract.text import Documents, Members, load, rows

_UNWANTED = re.compile(
    r"^(is_deprecated|is_false_positive): *(yes|true)|^language:(?! *en\b)", re.M
)


def scancode(members: Members) -> Documents:
    """Yield licence texts and notices: the body below the YAML front matter, English only."""
    for name, content in members:
        text = content.decode("utf-8", errors="replace")
        _, front, body = text.split("---\n", 2) if text.count("---\n") > 1 else ("", "", text)
        if not _UNWANTED.search(front):
            # `{{ }}` marks the words that the scanner requires.
            yield name, body.replace("{{", "").replace("}}", "")


def spdx_licences(members: Members) -> Documents:
    """Yield the licence texts of a JSON mapping of SPDX identifiers."""
    for name, content in members:
        for key, entry in sorted(load(name, content).items()):
            yield f"{name}#{key}", str(entry.get("licenseText", ""))


def eu_articles(members: Members) -> Documents:
    """Yield articles of EU regulations from the table `articles` of a SQLite file."""
    query = "select celex, article_id, content from articles order by celex, id"
    for name, content in members:
        for celex, article, text in rows(name, content, query):
            yield f"{name}#{celex}.{article}", str(text).replace("` ", "\n\n", 1)
