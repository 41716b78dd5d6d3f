"""`bam-lab runs`: what the store holds; `list` for all stages, `show` for one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from bam_lab.cli import options
from bam_lab.cli.output import amount, console, duration, print_json, table
from bam_lab.errors import InputError
from bam_lab.record import metrics
from bam_lab.record.files import intact, read_json
from bam_lab.record.stages import REVISIONS
from bam_lab.record.store import IMPORTED, Store, store_root
from bam_lab.spec.messages import nearest

app = typer.Typer(no_args_is_help=True, help="List and show the stages in the store.")


@app.command("list")
def list_runs(store: options.StorePath = None, json: options.Json = False) -> None:
    """List the finished stages, those in progress and those that failed."""
    where = Store(store_root(store))
    rows = [_summary(where, key, state) for key, state in _keys(where).items()]
    order = {name: place for place, name in enumerate(REVISIONS)}
    rows.sort(key=lambda row: (order.get(row["stage"], len(order)), row["label"], row["key"]))
    if json:
        print_json(rows)
        return
    out = console()
    if not rows:
        out.print(f"Nothing ran in {where.root} yet. `bam-lab list` shows what can.")
        return
    made = table("key", "what", "state", ">tokens", ">time")
    for row in rows:
        ledger, manifest = row["ledger"], row["manifest"]
        made.add_row(
            row["key"],
            row["label"],
            row["state"],
            amount(ledger["tokens"]) if ledger else "",
            duration(manifest["wall_s"]) if manifest else "",
        )
    out.print(made)
    for row in rows:
        if row["failure"]:
            out.print(f"{row['key']}: {row['failure']['reason']}", style="red", markup=False)


@app.command("show")
def show_run(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A stage's key, or its beginning.")],
    store: options.StorePath = None,
    json: options.Json = False,
) -> None:
    """Show one stage: what it is, what made it, what it cost, how it went."""
    where = Store(store_root(store))
    found = _find(where, key)
    row = _summary(where, found, _keys(where)[found])
    row["folder"] = str(_folder(where, found))
    with intact(_folder(where, found)):
        row["last_metrics"] = metrics.read(_folder(where, found) / metrics.NAME)[-1:]
    if json:
        print_json(row)
        return
    out = console()
    out.print(f"[bold]{row['key']}[/bold]  {escape(row['label'])}  ({row['state']})", markup=True)
    out.print(row["folder"], soft_wrap=True)
    for part in ("spec", "inputs", "ledger", "manifest", "failure"):
        if row[part]:
            out.print(f"\n{part}", style="bold")
            _tree(row[part], out.print)


def _tree(data: Any, write: Any, indent: int = 2) -> None:
    for name, value in data.items():
        if isinstance(value, dict) and value:
            write(f"{' ' * indent}{name}", markup=False)
            _tree(value, write, indent + 2)
        else:
            write(f"{' ' * indent}{name}: {_text(name, value)}", markup=False)


def _text(name: str, value: Any) -> str:
    """Return a value for people; Unix times as dates."""
    if name in ("started", "finished", "time") and isinstance(value, float):
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return str(value)


def _keys(store: Store) -> dict[str, str]:
    """Return every stage's key with its state; a finished one hides earlier failures."""
    states: dict[str, str] = {}
    for folder, state in (("failures", "failed"), ("work", "in progress"), ("stages", "done")):
        root = store.root / folder
        for path in sorted(root.iterdir()) if root.is_dir() else []:
            if folder != "stages" or (path / "DONE").is_file():
                here = "imported" if (path / IMPORTED).is_file() else state
                states[path.name.removesuffix(".json")] = here
    return dict(sorted(states.items()))


def _folder(store: Store, key: str) -> Path:
    return store.stage(key) if store.is_done(key) else store.work(key)


def _find(store: Store, key: str) -> str:
    keys = list(_keys(store))
    found = [key] if key in keys else [known for known in keys if known.startswith(key)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{key!r} must mean one stage, could be {', '.join(found)}. Add digits.")
    hint = nearest(key, keys) if keys else "The store is empty."
    raise InputError(f"{key!r} must be a stage of {store.root}. {hint}")


def _summary(store: Store, key: str, state: str) -> dict[str, Any]:
    folder = _folder(store, key)
    spec = _read(folder / "spec.json")
    failure = store.failure(key)
    return {
        "key": key,
        "state": state,
        "stage": key.rpartition("-")[0],
        "label": spec.get("label") or (failure or {}).get("label") or "",
        "spec": spec.get("spec", {}),
        "inputs": spec.get("inputs", {}),
        "ledger": _read(folder / "ledger.json"),
        "manifest": _read(folder / "manifest.json"),
        "failure": failure or {},
    }


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON file's data; empty where the stage has none (yet)."""
    with intact(path.parent):
        return dict(read_json(path)) if path.is_file() else {}
