"""A fabric in miniature: messages that queue for wires, so that a formula can be held against what happens.

Every wire (a GPU's NVLink out and in, its NIC out and in) carries one message at a time, at its rate, first come
first served; between two wires is a switch that stores. The algorithms are written as messages, without a formula.

>>> from clusters.line_rate import Fabric
>>> pair = Fabric(domains=1, gpus_per_domain=2, nvlink=10.0)
>>> round(busbw("all_to_all", direct_all_to_all, pair), 1)
9.6
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise

from clusters.line_rate import Fabric, bus_factor

CHUNKS = 24  # a buffer goes in so many pieces, so that filling and draining the pipeline costs little
WINDOW = 4  # pieces on their way at once, as a library's buffers allow; a flood would hold up what it waits for
Wire = tuple[str, int]  # ("out" | "in" | "nic out" | "nic in", rank)
Ready = dict[int, list[int]]  # domain -> the hops it waits for


class Simulation:
    """Hops over the wires of a fabric. Size 1 is one buffer of the operation."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.rate = {"out": fabric.nvlink, "in": fabric.nvlink, "nic out": fabric.nic, "nic in": fabric.nic}
        self.hops: list[tuple[Wire, float, list[int]]] = []

    def hop(self, wire: Wire, size: float, after: Iterable[int] = ()) -> int:
        """A message over one wire, once the hops `after` are done; returns its number."""
        self.hops.append((wire, size, list(after)))
        return len(self.hops) - 1

    def send(self, a: int, b: int, size: float, after: Iterable[int] = ()) -> int:
        """From rank a to rank b: by NVLink inside a domain, else by both NICs; returns the last hop."""
        g = self.fabric.gpus_per_domain
        kind = "" if a // g == b // g else "nic "
        return self.hop((f"{kind}in", b), size, [self.hop((f"{kind}out", a), size, after)])

    def seconds(self) -> float:
        """When the last message has arrived."""
        waits = [len(after) for _, _, after in self.hops]
        followers = defaultdict(list)
        for i, (_, _, after) in enumerate(self.hops):
            for j in after:
                followers[j].append(i)
        ready, free = [0.0] * len(waits), defaultdict(float)
        queue = [(0.0, i) for i, count in enumerate(waits) if not count]
        done = 0
        while queue:
            now, i = heapq.heappop(queue)
            wire, size, _ = self.hops[i]
            arrived = free[wire] = max(now, free[wire]) + size / self.rate[wire[0]]
            done += 1
            for j in followers[i]:
                waits[j] -= 1
                ready[j] = max(ready[j], arrived)
                if not waits[j]:
                    heapq.heappush(queue, (ready[j], j))
        assert done == len(waits), "hops that wait for each other"
        return max(free.values())


def busbw(op: str, algorithm: Callable[[Simulation], None], fabric: Fabric) -> float:
    """Bus bandwidth that an algorithm really gets."""
    simulation = Simulation(fabric)
    algorithm(simulation)
    return bus_factor(op, fabric.ranks) / simulation.seconds()


def _rings(f: Fabric) -> list[list[int]]:
    """One ring for every GPU of a domain, each leaving the domain by another GPU."""
    k, g = f.domains, f.gpus_per_domain
    return [[d * g + (r + 1 + i) % g for d in range(k) for i in range(g)] for r in range(g)]


def _ring_steps(
    s: Simulation, ring: list[int], size: float, steps: int, starts: dict[int, list[int]], pieces: int
) -> list[int]:
    """Every rank's share of `size` goes `steps` ranks on, after its `starts`; returns the last hops."""
    last = []
    for i, rank in enumerate(ring):
        for _ in range(pieces):
            after = starts.get(rank, [])
            for step in range(steps):
                a, b = ring[(i + step) % len(ring)], ring[(i + step + 1) % len(ring)]
                after = [s.send(a, b, size / pieces, after)]
            last += after
    return last


def ring_all_reduce(s: Simulation) -> None:
    n, rings = s.fabric.ranks, _rings(s.fabric)
    for ring in rings:
        _ring_steps(s, ring, 1 / len(rings) / n, 2 * (n - 1), {}, 6)


def ring_all_gather(s: Simulation) -> None:
    n, rings = s.fabric.ranks, _rings(s.fabric)
    for ring in rings:
        _ring_steps(s, ring, 1 / len(rings) / n, n - 1, {}, 6)


def ring_broadcast(s: Simulation) -> None:
    rings = _rings(s.fabric)
    for ring in rings:
        chain = ring[ring.index(0) :] + ring[: ring.index(0)]
        for _ in range(CHUNKS):
            after: list[int] = []
            for a, b in pairwise(chain):
                after = [s.send(a, b, 1 / len(rings) / CHUNKS, after)]


def binary_tree(k: int) -> dict[int, int]:
    """Parent of every node but the root, 0: node i hangs under the number without its lowest set bit, or above it."""
    parents = {}
    for i in range(1, k):
        low = i & -i
        up = (i ^ low) | (low << 1)
        parents[i] = up if up < k else i ^ low
    return parents


def double_tree(k: int) -> list[dict[int, int]]:
    """The tree and its complement: mirrored for an even number of nodes, shifted by one for an odd one."""
    tree = binary_tree(k)
    other = {
        (k - 1 - c if k % 2 == 0 else (c + 1) % k): (k - 1 - p if k % 2 == 0 else (p + 1) % k) for c, p in tree.items()
    }
    return [tree, other]


def _tree_across(s: Simulation, parents: dict[int, int], rail: int, size: float, ready: Ready) -> Ready:
    """Up and down a tree of domains by the NICs of one rail; returns what each domain waits for to have the sum."""
    g, k = s.fabric.gpus_per_domain, s.fabric.domains
    children = defaultdict(list)
    for child, parent in parents.items():
        children[parent].append(child)
    have: Ready = {}

    def up(node: int) -> list[int]:
        came = [s.send(c * g + rail, node * g + rail, size, up(c)) for c in children[node]]
        return ready.get(node, []) + came

    def down(node: int, after: list[int]) -> None:
        have[node] = after
        for c in children[node]:
            down(c, [s.send(node * g + rail, c * g + rail, size, after)])

    (root,) = set(range(k)) - set(parents)
    down(root, up(root))
    return have


def tree_all_reduce(s: Simulation) -> None:
    """A chain inside each domain, headed by the GPU whose NIC is used, and the double tree across."""
    k, g = s.fabric.domains, s.fabric.gpus_per_domain
    trees = double_tree(k) if k > 1 else [{}]
    size = 1 / (g * len(trees) * CHUNKS)
    for _ in range(CHUNKS):
        for head in range(g):
            for parents in trees:
                chains = {d: [d * g + (head + i) % g for i in range(g)] for d in range(k)}
                ready = {}
                for d, chain in chains.items():
                    after: list[int] = []
                    for a, b in zip(chain[:0:-1], chain[-2::-1], strict=True):
                        after = [s.send(a, b, size, after)]
                    ready[d] = after
                have = _tree_across(s, parents, head, size, ready)
                for d, chain in chains.items():
                    after = have[d]
                    for a, b in pairwise(chain):
                        after = [s.send(a, b, size, after)]


def _switch_all_reduce(s: Simulation, across: Callable[[int, float, Ready], Ready]) -> None:
    """The NVLink switch reduces each GPU's share, `across` joins the domains, the switch multicasts the sum."""
    k, g = s.fabric.domains, s.fabric.gpus_per_domain
    size = 1 / g / CHUNKS
    for i in range(g):
        done: list[list[int]] = []
        for chunk in range(CHUNKS):
            after = done[chunk - WINDOW] if chunk >= WINDOW else []
            sent = {d: [s.hop(("out", d * g + j), size, after) for j in range(g)] for d in range(k)}
            reduced = {d: [s.hop(("in", d * g + i), size, hops)] for d, hops in sent.items()}
            done.append([])
            for d, have in across(i, size, reduced).items():
                back = s.hop(("out", d * g + i), size, have)
                done[chunk] += [s.hop(("in", d * g + j), size, [back]) for j in range(g)]


def nvls_all_reduce(s: Simulation) -> None:
    _switch_all_reduce(s, lambda _rail, _size, ready: ready)


def nvls_tree_all_reduce(s: Simulation) -> None:
    trees = double_tree(s.fabric.domains)

    def across(rail: int, size: float, ready: Ready) -> Ready:
        halves = [_tree_across(s, tree, rail, size / 2, ready) for tree in trees]
        return {d: halves[0][d] + halves[1][d] for d in ready}

    _switch_all_reduce(s, across)


def nvls_ring_all_reduce(s: Simulation) -> None:
    """The switch inside, a ring of domains on every rail: what comes nearest to the node cut."""
    k, g = s.fabric.domains, s.fabric.gpus_per_domain

    def across(rail: int, size: float, ready: Ready) -> Ready:
        ring = [d * g + rail for d in range(k)]
        starts = {d * g + rail: after for d, after in ready.items()}
        last = _ring_steps(s, ring, size / k, 2 * (k - 1), starts, 1)
        return dict.fromkeys(ready, last)

    _switch_all_reduce(s, across)


def sharp_all_reduce(s: Simulation) -> None:
    """The network's switches add up what the domains send, and send the sum to all."""
    g = s.fabric.gpus_per_domain

    def across(rail: int, size: float, ready: Ready) -> Ready:
        sent = [s.hop(("nic out", d * g + rail), size, after) for d, after in ready.items()]
        return {d: [s.hop(("nic in", d * g + rail), size, sent)] for d in ready}

    _switch_all_reduce(s, across)


def rail_all_gather(s: Simulation) -> None:
    """Every share crosses once by its own rail; whoever has it hands it to its domain's GPUs by NVLink."""
    k, g, n = s.fabric.domains, s.fabric.gpus_per_domain, s.fabric.ranks
    size = 1 / n / CHUNKS
    for _ in range(CHUNKS):
        for rank in range(n):
            d, i = divmod(rank, g)
            after: list[int] = []
            for step in range(k):
                here = (d + step) % k * g
                for j in range(1, g):
                    s.send(here + i, here + (i + j) % g, size, after)
                if step < k - 1:
                    after = [s.send(here + i, (d + step + 1) % k * g + i, size, after)]


def direct_all_to_all(s: Simulation) -> None:
    n = s.fabric.ranks
    for step in range(1, n):
        for rank in range(n):
            for _ in range(CHUNKS):
                s.send(rank, (rank + step) % n, 1 / n / CHUNKS)


def rail_broadcast(s: Simulation) -> None:
    """The root deals its buffer out to its domain, every rail carries a share on, and domains join their shares."""
    k, g = s.fabric.domains, s.fabric.gpus_per_domain
    size = 1 / g / CHUNKS
    for _ in range(CHUNKS):
        for i in range(g):
            after = [s.send(0, i, size)] if i else []
            for d in range(k):
                for j in range(1, g):
                    if (d, (i + j) % g) != (0, 0):
                        s.send(d * g + i, d * g + (i + j) % g, size, after)
                if d < k - 1:
                    after = [s.send(d * g + i, (d + 1) * g + i, size, after)]


def binomial_broadcast(s: Simulation) -> None:
    """gloo: in every round whoever has the buffer sends all of it to one who has not."""
    for _ in range(CHUNKS):
        have: Ready = {0: []}
        while len(have) < s.fabric.ranks:
            for rank, after in list(have.items()):
                if len(have) < s.fabric.ranks:
                    have[len(have)] = [s.send(rank, len(have), 1 / CHUNKS, after)]
