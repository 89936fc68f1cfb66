"""Context parallelism: one sequence over several ranks, each with a head piece and a tail piece of it.

Queries stay where they are; keys and values are gathered from all ranks, with a gradient, and a mask says
which of them a query may see. Attention does not care in which order keys come, so nothing is put back
in order. Head and tail together make every rank's share of the causal work equal.

>>> head_tail(8, size=2, index=0).tolist(), head_tail(8, size=2, index=1).tolist()
([0, 1, 6, 7], [2, 3, 4, 5])
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional


@dataclass(frozen=True, kw_only=True)
class Context:
    """This rank's place among those that share a sequence."""

    size: int
    index: int
    group: dist.ProcessGroup

    def positions(self, length: int) -> Tensor:
        """Positions in the sequence of this rank's tokens, int64 [length / size]."""
        return head_tail(length, size=self.size, index=self.index)

    def mask(self, length: int) -> Tensor:
        """Which gathered keys each of this rank's queries sees, bool [length / size, length]."""
        keys = torch.cat([head_tail(length, size=self.size, index=i) for i in range(self.size)])
        return self.positions(length)[:, None] >= keys

    def gather(self, x: Tensor) -> Tensor:
        """Keys or values [batch, heads, sequence / size, width] of all ranks, in rank order along the sequence."""
        old = "all_gather_tensor_autograd"  # its name before torch 2.13
        gather = getattr(functional, "all_gather_single_autograd", None) or getattr(functional, old)
        gathered: Tensor = gather(x.contiguous(), gather_dim=2, group=self.group)
        return gathered


def head_tail(length: int, *, size: int, index: int) -> Tensor:
    """Of a sequence in 2 x size pieces, the positions of piece `index` from the front and from the back."""
    pieces = torch.arange(length).chunk(2 * size)
    return torch.cat([pieces[index], pieces[-1 - index]])
