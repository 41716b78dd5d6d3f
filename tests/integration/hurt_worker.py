"""The real stages, hurt on purpose: killed at a step, or started from weights that overflow.

KILL is `label:step`, several parted by `;`, each done once; POISON is a mixture stage's label.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace

import torch
from safetensors.torch import load_file, save_file

from bam_lab.run.context import Progress, StageContext, StageFunction
from bam_lab.run.stages import STAGES
from bam_lab.run.worker import serve


def hurt(run: StageFunction) -> Callable[[StageContext], None]:
    def act(context: StageContext) -> None:
        steps = dict(part.split(":") for part in os.environ.get("KILL", ":").split(";"))
        marker = context.cache / f"killed {context.label}"

        def report(progress: Progress) -> None:
            context.report(progress)
            if steps.get(context.label) == str(progress.step) and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        inputs = dict(context.inputs)
        if context.label == os.environ.get("POISON"):
            poisoned = context.cache / "poisoned"
            shutil.copytree(inputs["upcycle"], poisoned)
            path = poisoned / "checkpoint" / "model.safetensors"
            state = load_file(path)
            state["final_norm"][:] = torch.finfo(torch.float32).max  # a NaN would be refused
            save_file(state, path)
            described = path.with_name("model.json")
            told = json.loads(described.read_text())
            del told["weights"]  # the digest
            described.write_text(json.dumps(told))
            inputs["upcycle"] = poisoned
        run(replace(context, report=report, inputs=inputs))

    return act


if __name__ == "__main__":
    serve({name: hurt(run) for name, run in STAGES.items()})
