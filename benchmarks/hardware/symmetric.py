"""Words in torch's symmetric memory, and the kernel that plays ping-pong with them. For GPUs that NVLink joins.

Each GPU of a domain has a line of memory for every member, mapped into all others. A kernel of one thread stores into
the other GPU's line and watches its own; the clock is a pair of device events around the kernel. Both ends queue a
warm-up kernel and the timed one back to back, so the timed one starts on both once the warm-up has brought them into
step. A kernel that waits in vain gives up after PATIENCE clock cycles and says so, so a dead peer hangs nobody.

    words = Words(world, domain)
    seconds, wrong = words.play(peer, leads=True, first=0, warm_up=200, trips=2000)
"""

from __future__ import annotations

import torch

from benchmarks.hardware.pingpong import Domain
from benchmarks.hardware.spec import Hardware
from benchmarks.world import World

LINE = 16  # words of 8 bytes: two pairs never share a cache line
PATIENCE = 1 << 33  # clock cycles: some seconds
KERNEL = f"""
extern "C" __global__ void ping_pong(
    volatile unsigned long long* mine, volatile unsigned long long* theirs, unsigned long long* tally,
    int leads, int first, int trips)
{{
    unsigned long long wrong = 0, done = 0;
    for (int trip = 0; trip < trips; ++trip) {{
        const unsigned long long before = first + trip, word = before + 1;
        if (leads) *theirs = word;
        unsigned long long got = *mine;
        for (const long long begin = clock64(); got == before && clock64() - begin < {PATIENCE}LL;) got = *mine;
        if (got == before) break;
        wrong += got != word;
        if (!leads) *theirs = word;
        ++done;
    }}
    tally[0] += wrong;
    tally[1] += done;
}}
"""  # volatile loads and stores are of system scope: they reach the other GPU, and no cache keeps an old word


def lacking(spec: Hardware, world: World) -> str:  # noqa: ARG001 - one signature for all tools
    """Why this rank's GPU cannot share memory with its neighbours; "" where it can."""
    if world.device.type != "cuda":
        return "symmetric memory is for GPUs"
    if torch.version.hip:
        return "the ping-pong kernel is CUDA's: AMD GPUs are not measured this way"
    if not hasattr(torch.cuda, "_compile_kernel"):
        return f"torch {torch.__version__} cannot compile the kernel: install torch 2.9 or newer"
    here, visible = world.device.index, torch.cuda.device_count()
    apart = [i for i in range(visible) if i != here and not torch.cuda.can_device_access_peer(here, i)]
    return f"GPU {here} has no peer access to GPU {apart[0]}: NVLink or the driver's P2P is off" if apart else ""


class Words:
    """A line of symmetric memory for each member of the domain, and the kernel on this rank's GPU."""

    def __init__(self, world: World, domain: Domain) -> None:
        import torch.distributed._symmetric_memory as symmetric  # only where there are GPUs

        self.world, self.domain = world, domain
        size = LINE * len(domain.ranks)
        self.mine = symmetric.empty(size, dtype=torch.int64, device=world.device).zero_()
        self.handle = symmetric.rendezvous(self.mine, domain.group)
        # a tensor may lie anywhere in its allocation: get_buffer knows only where that begins (torch 2.9 has no other)
        remote = getattr(self.handle, "get_remote_tensor", self.handle.get_buffer)
        self.theirs = [remote(i, (size,), torch.int64) for i in range(len(domain.ranks))]
        self.tally = torch.zeros(2, dtype=torch.int64, device=world.device)  # wrong words, trips done
        self.kernel = torch.cuda._compile_kernel(KERNEL, "ping_pong")
        world.barrier()  # everybody's line is zero before anybody stores into it

    def play(self, peer: int, *, leads: bool, first: int, warm_up: int, trips: int) -> tuple[float, int]:
        """See `pingpong.Words`."""
        self.tally.zero_()
        self._launch(peer, leads=leads, first=first, trips=warm_up)
        seconds = self.world.timed(lambda: self._launch(peer, leads=leads, first=first + warm_up, trips=trips))
        wrong, done = self.tally.tolist()
        if done < warm_up + trips:
            raise RuntimeError(
                f"rank {self.domain.ranks[peer]} did not answer after {done} of {warm_up + trips} trips of a word over "
                f"symmetric memory: is the link between the two GPUs up (nvidia-smi nvlink -s)?"
            )
        return seconds, wrong

    def _launch(self, peer: int, *, leads: bool, first: int, trips: int) -> None:
        mine = self.mine[LINE * peer :]
        theirs = self.theirs[peer][LINE * self.domain.place :]
        self.kernel(args=[mine, theirs, self.tally, int(leads), first, trips])
