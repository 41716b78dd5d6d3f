"""One process of a run over two: trains, keeps what its model read, and where it ended.

    LOCAL_RANK=R WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... python -m tests.train.one_rank \
        TOKENS OUT
"""

import os
import sys
from pathlib import Path

import torch

from bam_lab.data.tokens.batches import Batches
from bam_lab.methods import Dense
from bam_lab.train.fit import fit
from bam_lab.train.optim import Training
from tests.model.cases import shape

STEPS, SEQUENCES, SEQ_LEN = 8, 4, 24
MIX = {"law": 0.6, "math": 0.4}


class KilledError(Exception):
    pass


def train(tokens, workdir, die_at=None, **spread):
    """Return the trained module and the inputs of each pass."""
    module = Dense.from_scratch(shape(), rng_seed=0, training=Training(STEPS, 1e-2, 2))
    seen = []
    module.model.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))

    def progress(at):
        if at.step == die_at:
            raise KilledError

    workdir.mkdir(exist_ok=True, parents=True)
    batches = Batches(tokens, MIX, SEQUENCES, SEQ_LEN, 3)
    fixed = {"precision": "float32", "device": "cpu", "threads": 1, "checkpoint_every": 3}
    fixed |= {"log_every": 2, "workdir": workdir, "progress": progress}
    try:
        fit(module, batches, **fixed, **spread)
    except KilledError:
        assert die_at
    return module.model.state_dict(), seen


def scenarios(tokens, out, ranks):
    """Run whole, killed and resumed, and with two passes a step; return name -> (state, seen)."""
    return {
        "whole": train(tokens, out / "whole", ranks=ranks),
        "killed": train(tokens, out / "killed", die_at=5, ranks=ranks),
        "resumed": train(tokens, out / "killed", ranks=ranks),
        "passes": train(tokens, out / "passes", ranks=ranks, accumulate=2),
        "passes-killed": train(tokens, out / "pk", die_at=5, ranks=ranks, accumulate=2),
        "passes-resumed": train(tokens, out / "pk", ranks=ranks, accumulate=2),
    }


if __name__ == "__main__":
    found = scenarios(Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ["WORLD_SIZE"]))
    torch.save(found, Path(sys.argv[2]) / f"rank{os.environ['LOCAL_RANK']}.pt")
