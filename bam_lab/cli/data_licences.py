"""The attributions that a publication owes for a corpus: one entry a source."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from bam_lab.cli.output import printable, size


def licences(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return every source that gave text, or evaluation items, with package and licence."""
    entries = []
    for domain, record in manifest["domains"].items():
        for source, facts in record["sources"].items():
            splits = facts["splits"].values()
            used = sum(split["documents"] for split in splits)
            if used:
                count = sum(split["bytes"] for split in splits)
                entries.append(
                    {
                        "source": source,
                        "domain": domain,
                        "use": "text",
                        **_origin(facts),
                        "documents": used,
                        "bytes": count,
                    }
                )
    for source, facts in manifest.get("evaluation", {}).items():
        if not facts["failure"]:
            entries.append(
                {
                    "source": source,
                    "domain": None,
                    "use": "evaluation",
                    **_origin(facts),
                    "items": facts["items"],
                }
            )
    return {"digest": manifest["digest"], "sources": entries}


def _origin(facts: Mapping[str, Any]) -> dict[str, Any]:
    package, _, version = (facts["package"] or "").partition(" ")
    return {
        "package": package or None,
        "version": version or None,
        "licence": facts["licence"],
        "file": dict(facts["file"]),
    }


def show(found: Mapping[str, Any], out: Console) -> None:
    """Print the attributions as text that can be pasted; nothing is wrapped or cut."""
    out.print(f"Text of the corpus {found['digest'][:16]} is taken from these sources.")
    for entry in found["sources"]:
        amount = (
            f"{entry['items']:,} evaluation items; nothing was trained on them"
            if entry["use"] == "evaluation"
            else f"{entry['documents']:,} documents, {size(entry['bytes'])}, domain "
            f"{entry['domain']}"
        )
        package = " ".join(filter(None, (entry["package"], entry["version"]))) or "local files"
        file = entry["file"].get("file", "")
        where = f"{package} ({file})" if file else package
        for line in ("", entry["source"], f"  {where}", f"  licence: {entry['licence']}"):
            out.print(Text(printable(line)), soft_wrap=True)
        out.print(Text(f"  {amount}"), soft_wrap=True)
