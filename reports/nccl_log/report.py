"""What a log says, as records: findings with their evidence, and facts per rank and per node.

A finding is one sentence about one check. `wrong` costs time or correctness now, `unknown` means the log does
not show it, `note` is worth knowing, `fine` was checked and holds. Nothing here reads a log.

>>> Finding(check="network", severity="wrong", sentence="Traffic between nodes runs over TCP sockets.").severity
'wrong'
"""

from __future__ import annotations

from dataclasses import dataclass, field

SEVERITIES = ("wrong", "unknown", "note", "fine")
HEALTHY, WRONG, CANNOT_TELL = 0, 1, 3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence about one check, what to try, and where it stands in the log."""

    check: str  # complete, version, network, gpudirect, hcas, node, nvls, sharp, settings, messages
    severity: str  # wrong | unknown | note | fine
    sentence: str
    tries: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # "FILE:LINE", at most a few
    count: int = 0  # lines of the log that say so


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """What one rank (a GPU of a process) really did."""

    rank: int | None  # in its largest communicator; None where the log does not say
    ranks: int | None  # size of that communicator
    host: str
    pid: int
    gpu: int
    versions: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()  # as NCCL names them: IB, Socket, AWS Libfabric ...
    hcas: tuple[str, ...] = ()  # network devices that carried its channels
    gdr: bool | None = None  # every network channel with GPUDirect RDMA; None: no network channel seen
    transports: dict[str, int] = field(default_factory=dict)  # "P2P/CUMEM", "SHM", "NET/IB" ... -> channels
    channels: int | None = None
    nvls: bool | None = None


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The ranks of one host together."""

    host: str
    ranks: int
    networks: tuple[str, ...]
    hcas_used: tuple[str, ...]
    hcas_listed: tuple[str, ...]
    gdr: str  # on | off | partly | ""
    transports: tuple[str, ...]
    nvls: str  # on | off | partly | ""


@dataclass(frozen=True, kw_only=True)
class LogReport:
    """What NCCL really did, and what is wrong with it."""

    files: tuple[str, ...]
    num_lines: int
    num_nccl_lines: int
    num_bytes: int
    versions: tuple[str, ...]
    num_ranks: int  # ranks the largest communicator has
    algorithms: tuple[str, ...]  # "AllReduce 8 B to 64 MiB: RING/LL128, channels 0..15" from the tuning lines
    rings: tuple[str, ...]  # order of the ranks, channel by channel, as printed; the first few
    trees: tuple[str, ...]  # first tree of each rank, as printed; the first few
    ranks: tuple[RankReport, ...]
    nodes: tuple[NodeReport, ...]
    findings: tuple[Finding, ...]

    def of(self, check: str) -> tuple[Finding, ...]:
        """The findings of one check."""
        return tuple(f for f in self.findings if f.check == check)

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 something is wrong, 3 cannot tell."""
        severities = {f.severity for f in self.findings}
        if "wrong" in severities:
            return WRONG
        return CANNOT_TELL if "unknown" in severities or not self.findings else HEALTHY
