"""The arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bam_lab.record.store import VARIABLE

Reference = Annotated[
    str, typer.Argument(metavar="ID", help="Id, alias or file of an ablation (see `list`).")
]
OptionalReference = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="Id, alias or file of an ablation (see `list`)."),
]
All = Annotated[bool, typer.Option("--all", help="Every ablation, shared stages counted once.")]
Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="Also on devices of this kind: h100, a100-80gb."),
]
Count = Annotated[
    int | None,
    typer.Option("--count", min=1, max=1_000_000, metavar="N", help="How many; 1 if not given."),
]
Mfu = Annotated[
    float | None,
    typer.Option("--mfu", metavar="SHARE", help="Share of their peak reached; 0.4 if not given."),
]
Scale = Annotated[
    str | None,
    typer.Option(
        "--scale", metavar="NAME", help="Another scale of configs/scale, all sizes together."
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value by its dotted path; repeatable. Such runs are marked.",
    ),
]
Domains = Annotated[
    list[str] | None,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="Add a domain of your own (see `data add`); repeatable. Such runs are marked.",
    ),
]
Replicates = Annotated[
    int | None,
    typer.Option(
        "--replicates", min=1, max=1000, metavar="N", help="Instead of the ablation's own count."
    ),
]
StorePath = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help=f"Where results live; {VARIABLE} or .bam-lab if not given.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Processes at once; as many as the cores take if not given.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
PrecisionOption = Annotated[
    Literal["auto", "bf16-mixed", "float32"],
    typer.Option("--precision", help="Settled by a store's first run; auto: bf16 if in hardware."),
]
DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option("--device", help="Settled by a store's first run; auto: the GPU if there is one."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars.")]
