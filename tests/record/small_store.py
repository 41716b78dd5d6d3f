"""A store of four small stages with true fingerprints, for the tests of export and import."""

import json
from dataclasses import asdict
from pathlib import Path

from bam_lab.record.files import write_json
from bam_lab.record.fingerprint import fingerprint
from bam_lab.record.ledger import Ledger
from bam_lab.record.stages import KNOWN_BY, REVISIONS
from bam_lab.record.store import Store, stage_key

ABLATION = "small-nano"
NUMERICS = {"precision": "float32", "device": "cpu"}
WEIGHTS = b"\x00weights\xff" * 1000


def small_store(root: Path, numerics: dict = NUMERICS) -> tuple[Store, dict[str, str]]:
    """Return a store with corpus, tokenizer, mixture and evaluation; and role -> key."""
    store = Store(root)
    store.prepare()
    write_json(root / "numerics.json", numerics)
    made: dict[str, str] = {}
    rows = []

    def add(name, spec, inputs, files, facts=None, done=True):
        known = {k: v for k, v in inputs.items() if k in KNOWN_BY.get(name, inputs)}
        whole = {"stage": name, "spec": spec, "inputs": inputs, "revision": REVISIONS[name]}
        found = fingerprint({**whole, "inputs": known})
        key = stage_key(name, found)
        rows.append({"name": name, "fingerprint": found, "key": key, "inputs": inputs})
        made[name] = key
        if not done:
            return found
        work = store.open_work(key)
        manifest = {"numerics": {**numerics, "threads": 1}, "facts": facts or {}, "wall_s": 1.0}
        write_json(work / "spec.json", {**whole, "fingerprint": found, "label": name})
        write_json(work / "manifest.json", manifest)
        for path, data in files.items():
            (work / path).parent.mkdir(exist_ok=True)
            (work / path).write_bytes(data if isinstance(data, bytes) else data.encode())
        store.publish(key)
        return found

    text = {"law.train.jsonl": '{"text": "secret words"}\n', "corpus.json": '{"digest": "c"}'}
    corpus = add("corpus", {"corpus": {"a": 1}}, {}, text, {"digest": "c"})
    tokens = {"tokens/law.npy": b"\x93NUMPY", "tokenizer/tokenizer.json": "{}"}
    spec = {"vocab_size": 8, "corpus_digest": "c"}
    tokenizer = add("tokenizer", spec, {"corpus": corpus}, tokens, {"digest": "t"})
    trained = {
        "checkpoint/model.safetensors": WEIGHTS,
        "ledger.json": json.dumps(asdict(Ledger(10, 3, 1.0, 1.0, 5, 5, 2.0, 1.0))),
        "metrics.jsonl": '{"step": 1, "loss": 2.0}\n',
    }
    mixture = add("mixture", {"steps": 3}, {"tokenizer": tokenizer}, trained)
    scores = {"scores.csv": "kind,value\nheldout,2.5\n", "documents.csv": "domain\nlaw\n"}
    add("evaluate", {"splits": ["test"]}, {"model": mixture, "tokenizer": tokenizer}, scores)
    add("expert", {"steps": 9}, {}, {}, done=False)
    (store.root / "ablations" / ABLATION).mkdir(exist_ok=True)
    named = {"ablation": {"id": "small"}, "scale_name": "nano", "overrides": []}
    write_json(store.root / "ablations" / ABLATION / "index.json", {**named, "stages": rows})
    return store, made
