"""Synthetic tokens: the same for every layout, with something to learn in them.

Row `r` of step `t` depends on the seed, t and r only, so that each rank makes its own rows and no data
crosses the network. Low tokens are frequent (the cube of a uniform number), so a loss falls from ln(vocab).

>>> SyntheticTokens(vocab=100, sequence=8, seed=0).rows(step=0, rows=range(2))[0].shape
torch.Size([2, 8])
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SyntheticTokens:
    """An endless batch of random token rows."""

    vocab: int
    sequence: int
    seed: int

    def rows(self, *, step: int, rows: range) -> tuple[Tensor, Tensor]:
        """Tokens and the tokens that follow them, int64 [rows, sequence] each, on the CPU."""
        drawn = torch.empty(len(rows), self.sequence + 1, dtype=torch.float64)
        for place, row in enumerate(rows):
            key = f"{self.seed}/{step}/{row}".encode()
            drawn[place].uniform_(generator=torch.Generator().manual_seed(zlib.crc32(key)))
        tokens = (drawn**3 * self.vocab).long()
        return tokens[:, :-1], tokens[:, 1:]
