"""Write a pip report (`pip install --dry-run --report`) as a constraints file, to standard output.

Local version labels (`+cpu`) are dropped, so that the same file serves every build of torch.
"""

import json
import sys
from pathlib import Path

HEAD = """\
# One tested set of versions for the core, the extras train, data and report, and the groups test
# and dev. `make constraints` writes it anew. lightning 2.6.2 and 2.6.3 must never stand here.
"""

report = json.loads(Path(sys.argv[1]).read_text())
found = {item["metadata"]["name"].lower().replace("_", "-"): item for item in report["install"]}
lines = [
    f"{name}=={item['metadata']['version'].partition('+')[0]}"
    for name, item in sorted(found.items())
    if name != "bam-lab"
]
sys.stdout.write(HEAD + "\n".join(lines) + "\n")
