"""What has been read so far: plain mutable tables that the messages fill and the checks read.

Everything is kept per GPU, communicator or host, never per line, and every table has a cap, so that a log of
any size, or random bytes that look like one, stays within bounded memory. Nothing here parses or judges.

>>> facts = Facts()
>>> facts.gpu("node1", 4711, 0) is facts.gpu("node1", 4711, 0)
True
"""

from __future__ import annotations

from dataclasses import dataclass, field

PLACE_BITS = 40  # a place is one integer: file index << PLACE_BITS | line number
KEPT_PLACES = 3
MAX_GPUS = 1 << 14
MAX_COMMUNICATORS = 1 << 12
MAX_MEMBERS = 1 << 18  # of all communicators together
MAX_PEERS = 1 << 18  # network peers of all GPUs together
MAX_DISTINCT = 1 << 10  # remarks, settings, algorithms


class Seen:
    """How often something was seen, and where first."""

    __slots__ = ("count", "places")

    def __init__(self) -> None:
        self.count = 0
        self.places: list[int] = []

    def add(self, place: int, count: int = 1) -> None:
        """One more sighting (or `count`, the first of them at `place`)."""
        self.count += count
        if len(self.places) < KEPT_PLACES:
            self.places.append(place)

    def merge(self, other: Seen) -> None:
        """All sightings of `other` too."""
        self.count += other.count
        self.places = sorted({*self.places, *other.places})[:KEPT_PLACES]


@dataclass(frozen=True, slots=True)
class NetPath:
    """One way into the network: plugin, device and direction, with or without GPUDirect RDMA."""

    network: str  # IB, IBext_v8, Socket, AWS Libfabric ...
    device: int  # the index NCCL gives it
    direction: str  # send | receive | ""
    gdr: bool


@dataclass(eq=False, slots=True)
class Gpu:
    """One GPU as one process drives it: the unit that prints lines."""

    host: str
    pid: int
    index: int
    ranks: dict[str, int] = field(default_factory=dict)  # communicator -> rank in it
    pointers: dict[str, str] = field(default_factory=dict)  # address of a communicator -> its name
    versions: dict[str, Seen] = field(default_factory=dict)
    networks: dict[str, Seen] = field(default_factory=dict)  # as announced
    tails: dict[bytes, list[int]] = field(default_factory=dict)  # channel text -> [count, first place], not yet parsed
    transports: dict[str, Seen] = field(default_factory=dict)
    paths: dict[NetPath, Seen] = field(default_factory=dict)
    peers: dict[tuple[int, int], int] = field(default_factory=dict)  # (own rank, peer) over the network -> place
    links: set[str] = field(default_factory=set)  # path types inside the node: NVL, PIX, PHB, SYS, XGMI
    channels: int | None = None
    nvls: bool | None = None
    ring_gdr: bool | None = None  # "use ring PXN 0 GDR 1"


@dataclass(eq=False, slots=True)
class Communicator:
    """One communicator: who is in it, who started and who finished its set-up."""

    name: str
    size: int
    members: dict[int, Gpu] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=dict)  # rank -> place
    finished: set[int] = field(default_factory=set)
    num_nodes: int | None = None  # as NCCL counts them
    mnnvl: bool = False  # NVLink reaches over nodes
    ambiguous: bool = False  # several communicators under one name (before NCCL printed a commId)


@dataclass(eq=False, slots=True)
class Host:
    """What one host's ranks say about its network devices."""

    hcas: dict[int, str] = field(default_factory=dict)  # index -> name, as listed
    layers: dict[str, str] = field(default_factory=dict)  # name -> IB | RoCE
    virtual: dict[int, str] = field(default_factory=dict)  # index -> name of a merged device
    hca_gdr: dict[str, bool] = field(default_factory=dict)
    providers: dict[str, int] = field(default_factory=dict)  # of libfabric: efa, tcp -> place

    def device(self, index: int) -> str:
        """The name of a network device by the index channels use."""
        return self.virtual.get(index) or self.hcas.get(index) or f"device {index}"


@dataclass(eq=False, slots=True)
class Remark:
    """A warning, or a line that means one."""

    text: str
    level: str  # WARN | INFO | APP
    seen: Seen = field(default_factory=Seen)
    hosts: set[str] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Algorithm:
    """What the tuner chose for one operation: sizes and channels it was chosen for."""

    smallest: int
    largest: int
    channels: int
    seen: Seen = field(default_factory=Seen)


@dataclass(eq=False)
class Facts:
    """All tables of one reading."""

    gpus: dict[tuple[str, int, int], Gpu] = field(default_factory=dict)
    communicators: dict[str, Communicator] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    settings: dict[tuple[str, str], Seen] = field(default_factory=dict)  # (variable, value)
    remarks: dict[str, Remark] = field(default_factory=dict)
    algorithms: dict[tuple[str, str, str], Algorithm] = field(default_factory=dict)  # op, algorithm, protocol
    versions: dict[str, Seen] = field(default_factory=dict)
    rings: dict[str, int] = field(default_factory=dict)  # order of ranks -> place
    trees: dict[str, int] = field(default_factory=dict)
    sharp: dict[str, Seen] = field(default_factory=dict)  # CollNet plugin -> channels
    unread: Seen = field(default_factory=Seen)  # channel lines of an unknown form
    garbled: Seen = field(default_factory=Seen)  # lines where two ranks wrote over each other
    num_members: int = 0
    num_peers: int = 0

    def gpu(self, host: str, pid: int, index: int) -> Gpu:
        """The GPU of that name, made on first sight; one for all that are past the cap."""
        key = (host, pid, index)
        found = self.gpus.get(key)
        if found is None:
            if len(self.gpus) >= MAX_GPUS:
                key = ("(more processes than this reader lists)", 0, -1)
                if key in self.gpus:
                    return self.gpus[key]
            found = self.gpus[key] = Gpu(*key)
        return found

    def host(self, name: str) -> Host:
        """The host of that name, made on first sight."""
        if name not in self.hosts and len(self.hosts) >= MAX_GPUS:
            return Host()
        return self.hosts.setdefault(name, Host())

    def communicator(self, name: str, size: int) -> Communicator | None:
        """The communicator of that name; None past the cap."""
        found = self.communicators.get(name)
        if found is None and len(self.communicators) < MAX_COMMUNICATORS and self.num_members < MAX_MEMBERS:
            found = self.communicators[name] = Communicator(name, size)
        return found

    def join(self, communicator: Communicator, rank: int, gpu: Gpu) -> None:
        """`gpu` is `rank` of `communicator`."""
        before = communicator.members.get(rank)
        if before is None:
            self.num_members += 1
        elif before is not gpu:
            communicator.ambiguous = True
        communicator.members[rank] = gpu
        gpu.ranks[communicator.name] = rank

    def remark(self, key: str, text: str, level: str, host: str, place: int) -> None:
        """A warning's text, counted under `key` (the text without its numbers)."""
        found = self.remarks.get(key)
        if found is None:
            if len(self.remarks) >= MAX_DISTINCT:
                key, text = "", "(further warnings)"
            found = self.remarks.setdefault(key, Remark(text[:400], level))
        found.seen.add(place)
        if len(found.hosts) < 8:
            found.hosts.add(host)


def tally(table: dict[str, Seen], key: str, place: int, count: int = 1, cap: int = 64) -> None:
    """Count `key` in `table`; nothing new past `cap` keys."""
    found = table.get(key)
    if found is None:
        if len(table) >= cap:
            return
        found = table[key] = Seen()
    found.add(place, count)
