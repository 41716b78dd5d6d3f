"""Formal mathematics: Metamath's databases and proof scripts."""

import re

from bam_lab.data.sources.extract.text import Documents, Members, decode, pieces

# A comment, an axiom or a provable statement; what stands between `$=` and `$.` is a proof.
_METAMATH = re.compile(
    r"\$\(\s(?P<comment>.*?)\$\)"
    r"|(?P<label>\S+)\s+\$(?P<kind>[ap])\s(?P<statement>.*?)(?:\$=(?P<proof>.*?))?\$\.",
    re.S,
)


def metamath(members: Members) -> Documents:
    """Yield what a Metamath database says: its comments and statements, proofs left out."""
    for name, content in members:
        blocks = []
        for match in _METAMATH.finditer(decode(content)):
            if match["comment"] is not None:
                lines = [line.strip() for line in match["comment"].strip().splitlines()]
                blocks.append("\n".join(lines))
            else:
                statement = " ".join(match["statement"].split())
                blocks[-1:] = [
                    (blocks[-1] + "\n" if blocks else "") + f"{match['label']}: {statement}"
                ]
        yield from pieces(name, "\n\n".join(blocks))


def proof_scripts(members: Members) -> Documents:
    """Yield proof scripts (HOL Light's `.ml`, Coq's `.v`, ACL2's `.lisp`) in pieces."""
    for name, content in members:
        yield from pieces(name, decode(content))
