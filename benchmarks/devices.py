"""Which GPU a rank takes, and that no two take the same.

Most launchers show every rank all GPUs of its node, and rank k takes the k-th. A scheduler that binds GPUs to tasks
shows each rank only its own, as number 0; then number 0 is right for all of them. A shell that exports
CUDA_VISIBLE_DEVICES=0 looks exactly the same, which is why the GPUs' own names are compared between ranks.

>>> index_of(local_rank=3, visible=8), index_of(local_rank=3, visible=1)
(3, 0)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence


def index_of(*, local_rank: int, visible: int) -> int:
    """The number of the GPU that a rank takes, of those that it sees. ValueError where there is none for it."""
    if local_rank < visible:
        return local_rank
    if visible == 1:
        return 0
    raise ValueError(f"local rank {local_rank} has no GPU: it sees {visible} (CUDA_VISIBLE_DEVICES, or the driver)")


def shared(gpus: Sequence[tuple[str, str]]) -> str:
    """Which ranks have the same GPU, given (node, the GPU's own name) of every rank in order; "" where none do."""
    takers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, (node, name) in enumerate(gpus):
        if name:
            takers[node, name].append(rank)
    told = [
        f"ranks {', '.join(map(str, ranks))} of {node} share one GPU ({name})"
        for (node, name), ranks in takers.items()
        if len(ranks) > 1
    ]
    return "; ".join(told) + ": show each rank all GPUs, or one of its own" if told else ""
