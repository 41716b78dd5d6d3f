"""From a match mode to what each arm is given, so that arms are equal in what the spec says.

`lineage.py` has the dense models behind an arm, `phases.py` what a training stage spends,
`parts.py` how a mixture phase is cut, `knobs.py` and `settle.py` the sizes that are solved,
`measured.py` what must be timed, and `solve.py` the budgets of all arms.
"""

from bam_lab.cost.match.budget import TOLERANCE, ArmBudget
from bam_lab.cost.match.lineage import branches, mixed, num_experts, used_branches
from bam_lab.cost.match.phases import DENSE, PhaseBudget, expert_budget, phase_of, seed_budget
from bam_lab.cost.match.settle import settled
from bam_lab.cost.match.solve import solve

__all__ = [
    "DENSE",
    "TOLERANCE",
    "ArmBudget",
    "PhaseBudget",
    "branches",
    "expert_budget",
    "mixed",
    "num_experts",
    "phase_of",
    "seed_budget",
    "settled",
    "solve",
    "used_branches",
]
