"""How one model is spread over ranks: tensor, pipeline and data parallel sizes, and their order.

Ranks are numbered with tensor parallelism innermost, so that its traffic stays inside a node, then context
and data parallelism, and pipeline stages outermost. Nothing here knows torch: a layout can be planned anywhere.

>>> Layout.parse("tp2,pp2,dp4").ranks
16
>>> str(Layout.auto(8))
'tp2,pp2,dp2'
"""

from __future__ import annotations

import re
from dataclasses import dataclass

AXES = ("pp", "dp", "cp", "tp")  # of the rank grid, outermost first


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The sizes of a rank grid: rank = ((pp index x dp + dp index) x cp + cp index) x tp + tp index."""

    tp: int = 1  # tensor parallel: every matrix cut this many ways; activations between them by sequence
    pp: int = 1  # pipeline parallel: layers cut into stages
    dp: int = 1  # data parallel: ranks that see other tokens
    cp: int = 1  # context parallel: ranks that share one sequence
    shard: int = 0  # of the dp ranks, how many share one copy of the state; 0: all (FSDP2), 1: none (DDP)

    def __post_init__(self) -> None:
        for axis in (*AXES, "shard"):
            if getattr(self, axis) < (0 if axis == "shard" else 1):
                raise ValueError(f"layout {self}: {axis} must be 1 or more")
        if self.dp % self.copies_over:
            raise ValueError(
                f"layout {self}: shard{self.shard} does not divide dp{self.dp}; use a divisor of {self.dp}"
            )

    @classmethod
    def parse(cls, text: str) -> Layout:
        """A layout from "tp2,pp2,dp4" (any order, absent axes are 1; "shard2" makes HSDP, "shard1" DDP)."""
        sizes: dict[str, int] = {}
        for part in text.split(","):
            match = re.fullmatch(r"(tp|pp|dp|cp|shard)(\d+)", part.strip())
            if not match or match[1] in sizes:
                raise ValueError(f'layout {text!r}: {part!r} is not understood; write it as "tp2,pp2,dp1" or "auto"')
            sizes[match[1]] = int(match[2])
        return cls(**sizes)

    @classmethod
    def auto(cls, ranks: int, *, per_node: int = 0) -> Layout:
        """A layout that exercises what `ranks` ranks allow: tp2,pp2 of every four, tp2 of every two.

        With `per_node` ranks on each node (0: one node), tensor parallelism stays inside a node.
        """
        tp = 2 if ranks % 2 == 0 and (per_node or ranks) % 2 == 0 else 1
        pp = 2 if ranks % (2 * tp) == 0 and ranks >= 4 else 1
        return cls(tp=tp, pp=pp, dp=ranks // (tp * pp))

    @property
    def ranks(self) -> int:
        """World size that it needs."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def copies_over(self) -> int:
        """Over how many data parallel ranks one copy of the state is sharded."""
        return self.shard or self.dp

    @property
    def copies(self) -> int:
        """Copies of the state among the data parallel ranks: 1 with FSDP2, dp with DDP."""
        return self.dp // self.copies_over

    def __str__(self) -> str:
        text = f"tp{self.tp},pp{self.pp},dp{self.dp}" + (f",cp{self.cp}" if self.cp > 1 else "")
        return f"{text},shard{self.shard}" if self.shard and self.shard != self.dp else text
