"""One device of several: trains by gloo and writes how many bytes it really sent.

    LOCAL_RANK=R WORLD_SIZE=N MASTER_ADDR=... MASTER_PORT=... python -m tests.cost.one_device OUT

Sent is what this process wrote to its sockets, as Linux counts it (`/proc/self/io`).
"""

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import silu
from torch.nn.parallel import DistributedDataParallel

from bam_lab.model.losses import next_token_loss
from bam_lab.model.transformer import Transformer, initialise
from tests.cost.shapes import BTX, DENSE, shape

SEQUENCES, EXPERTS = 4, 4
SHAPE = shape(
    vocab_size=512, dim=256, num_layers=1, num_heads=4, num_kv_heads=4, head_dim=64, ffn_dim=512
)


@contextmanager
def counted(found, name):
    """Put the bytes that this process writes in the meantime into `found`."""
    distributed.barrier()
    before = written()
    yield
    found[name] = written() - before


def written():
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))


class Exchange(torch.autograd.Function):
    """Give the i-th part of my rows to device i of a group, and take one from each."""

    @staticmethod
    def forward(ctx, rows, group):
        ctx.group = group
        taken = torch.empty_like(rows)
        distributed.all_to_all_single(taken, rows.contiguous(), group=group)
        return taken

    @staticmethod
    def backward(ctx, gradient):
        taken = torch.empty_like(gradient)
        distributed.all_to_all_single(taken, gradient.contiguous(), group=ctx.group)
        return taken, None


class Experts(torch.nn.Module):
    """Hold this device's part of the experts; the group has all of them, and even shares of tokens.

    Whole experts, `top_k` of which a token goes to; or a part of every hidden width, where merged.
    """

    def __init__(self, group, top_k=1, merged=False):
        super().__init__()
        self.group, self.top_k, self.merged = group, top_k, merged
        self.devices = distributed.get_world_size(group)
        here = 1 if merged else EXPERTS // self.devices
        width = SHAPE.ffn_dim // (self.devices if merged else 1)
        self.gate, self.up, self.down = (
            torch.nn.Parameter(torch.randn(here, *sides, dtype=torch.bfloat16) / 16)
            for sides in ((SHAPE.dim, width), (SHAPE.dim, width), (width, SHAPE.dim))
        )

    def forward(self, x):
        if self.merged:
            parts = self.work(Exchange.apply(x.repeat(self.devices, 1), self.group))
            return Exchange.apply(parts, self.group).view(self.devices, *x.shape).sum(0)
        copies = x.repeat(self.top_k, 1)
        # Copy j of token i goes to expert (i + j) mod E.
        to = (torch.arange(len(x)) + torch.arange(self.top_k)[:, None]).flatten() % EXPERTS
        order = to.argsort(stable=True)
        back = Exchange.apply(self.work(Exchange.apply(copies[order], self.group)), self.group)
        return back[order.argsort()].view(self.top_k, *x.shape).sum(0)

    def work(self, rows):
        """Return the output of rows that came ordered by device, then by expert."""
        each = rows.view(self.devices, len(self.up), -1, SHAPE.dim).transpose(0, 1).flatten(1, 2)
        made = silu(each @ self.gate) * (each @ self.up) @ self.down
        return made.view(len(self.up), self.devices, -1, SHAPE.dim).transpose(0, 1).flatten(0, 2)


def data_parallel(found):
    """Take one step of a dense model, the batch spread over all devices."""
    model = initialise(Transformer(SHAPE, DENSE, 1), torch.Generator().manual_seed(0))
    spread = DistributedDataParallel(model)
    rows = SEQUENCES // distributed.get_world_size()
    tokens = torch.randint(0, SHAPE.vocab_size, (rows, SHAPE.max_seq_len))
    loss = next_token_loss(spread(tokens).hidden, model.lm_head_weight, tokens)
    with counted(found, "dense"):
        loss.backward()


def through_experts(found, name, **layer):
    """Take one forward and backward through a layer's experts."""
    rows = SEQUENCES // distributed.get_world_size()
    x = torch.randn(rows * SHAPE.max_seq_len, SHAPE.dim, dtype=torch.bfloat16, requires_grad=True)
    experts = Experts(**layer)
    with counted(found, name):
        experts(x).sum().backward()


def mixed_gradients(found, copies):
    """Sum the gradients of BTX: an expert's over its copies, all else over all devices."""
    with torch.device("meta"):
        state = Transformer(SHAPE, BTX, EXPERTS).state_dict().values()
    spread = sum(tensor.numel() for tensor in state if tensor.dim() == 3)
    shared = sum(tensor.numel() for tensor in state if tensor.dim() < 3)
    held = distributed.get_world_size(copies) / distributed.get_world_size()
    with counted(found, "btx in groups"):
        distributed.all_reduce(torch.zeros(shared))
        distributed.all_reduce(torch.zeros(int(spread * held)), group=copies)


def main(out):
    distributed.init_process_group("gloo", rank=int(os.environ["LOCAL_RANK"]))
    rank, half = distributed.get_rank(), distributed.get_world_size() // 2
    groups = [distributed.new_group(list(range(i * half, (i + 1) * half))) for i in range(2)]
    copies = [distributed.new_group([i, i + half]) for i in range(half)]
    torch.manual_seed(0)
    found, whole = {}, distributed.group.WORLD
    data_parallel(found)
    for top_k in (1, 2, EXPERTS):
        through_experts(found, f"top-{top_k}", group=whole, top_k=top_k)
    through_experts(found, "merged", group=whole, merged=True)
    through_experts(found, "top-2 in groups", group=groups[rank // half], top_k=2)
    mixed_gradients(found, copies[rank % half])
    distributed.barrier()
    (out / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
