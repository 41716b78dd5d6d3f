"""Find the YAML and template folders: the checkout's, else the copies inside the wheel.

The checkout comes first because an editable install copies force-included files once, and the
copies go stale.
"""

from pathlib import Path
from typing import Literal

Kind = Literal["configs", "ablations", "eval", "templates", "published"]

_CHECKOUT: dict[Kind, str] = {
    "configs": "configs",
    "ablations": "ablations",
    "eval": "eval",
    "templates": "reports/templates",
    "published": "reports/published",
}


def folder(kind: Kind) -> Path:
    """Return the folder of one kind of resource.

    Raises:
        FileNotFoundError: the installation is broken: neither place has it.
    """
    package = Path(__file__).resolve().parent
    checkout = package.parent / _CHECKOUT[kind]
    if (package.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    installed = package / "_resources" / kind
    if not installed.is_dir():
        raise FileNotFoundError(f"{installed} is missing: install bam-lab again")
    return installed
