"""`bam-lab data list` and `remove`: the corpora there are, and the domains of one's own."""

import re
from pathlib import Path
from typing import Any

from rich.text import Text

from bam_lab.cli import domains, options
from bam_lab.cli.corpora import shipped, spec_of
from bam_lab.cli.domains import Domain
from bam_lab.cli.output import console, print_json, printable, table
from bam_lab.errors import InputError
from bam_lab.record.store import Store, store_root
from bam_lab.spec.base import NAME


def list_(store: options.StorePath = None, json: options.Json = False) -> None:
    """List the corpora of configs/corpus, and the domains of your own."""
    root = store_root(store)
    corpora: list[dict[str, Any]] = [
        {"name": name, "domains": list(found), "built": _is_built(name, root)}
        for name, found in shipped().items()
    ]
    own = [_own(root, name) for name in domains.names(root)]
    if json:
        print_json({"corpora": corpora, "domains": own})
        return
    out = console()
    made = table("corpus", "built", "domains")
    for corpus in corpora:
        made.add_row(
            corpus["name"], "yes" if corpus["built"] else "no", ", ".join(corpus["domains"])
        )
    out.print(made)
    if not own:
        out.print("No domain of your own. Add one: bam-lab data add DOMAIN PATH", markup=False)
        return
    made = table("your domain", "made of", "licence")
    for entry in own:
        made.add_row(Text(entry["name"]), Text(printable(entry["path"]), overflow="fold"),
                     Text(printable(entry["licence"])))  # fmt: skip
    out.print(made)


def _is_built(corpus: str, root: Path) -> bool:
    from bam_lab.run.stage_specs import corpus_stage

    try:
        return Store(root).is_whole(corpus_stage(spec_of(corpus, root)).key)
    except InputError:  # local files of its are missing: it cannot be what is built
        return False


def _own(root: Path, name: str) -> dict[str, str]:
    from bam_lab.data.corpus.inspect import place

    found = domains.registered(root, [name])[name]
    source = found.sources[0]
    return {"name": name, "title": found.title, "path": place(source), "licence": source.licence}


def remove(domain: Domain, store: options.StorePath = None) -> None:
    """Forget a domain of your own; its text, and results with it, stay."""
    root = store_root(store)
    if not re.fullmatch(NAME, domain) or domain not in domains.names(root):
        domains.registered(root, [domain])  # says what there is
    domains.file_of(root, domain).unlink()
    console().print(f"{domain} is no domain of {root} any more; results with it are kept.")
