"""Whether a cluster file and the benchmarks speak of the same things: metrics, units, directions, settings.

What the benchmarks know comes from outside (`clusters` imports nothing of ours). Pass all of it, not only what the
suite that runs needs: a limit on something nobody measures would look like protection and be none.

>>> from clusters.cluster import Cluster
>>> limit = Limit(name="low", metric="gemm.flop", unit="FLOP/s", floor=1.0, source="contract")
>>> cluster = Cluster(name="c", path="c.toml", text="", sha256="", limits=(limit,))
>>> check_metrics(cluster, ["gemm.flops"])
Traceback (most recent call last):
    ...
clusters.table.ClusterError: c.toml [limits.low]: no benchmark emits 'gemm.flop' (do you mean 'gemm.flops'?); ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from clusters.cluster import Cluster
from clusters.limits import POSITIVE, Limit
from clusters.table import ClusterError, Table, near

GOOD_SIDE = {"higher": "floor", "lower": "ceiling", "equal": "equal"}


def check_metrics(cluster: Cluster, names: Iterable[str] | Mapping[str, tuple[str, str]]) -> None:
    """Refuse limits and exemptions that fit no metric.

    `names` are the metrics of all benchmarks; as a mapping name -> (unit, better), unit and direction are checked
    too. Raises ClusterError: unknown metric (nearest named), another unit, a floor where lower is better or that
    nothing is below, a ratio of different units or of a metric to itself.
    """
    names = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, ("", ""))
    for exemption in cluster.exemptions:
        _matching(exemption.metric, names, f"{cluster.path} [not_applicable]")
    for limit in cluster.limits:
        where = f"{cluster.path} [limits.{limit.name}]"
        for name in _matching(limit.metric, names, where):
            unit, better = names[name]
            if limit.ratio_to:
                _check_ratio(limit, limit.ratio_to, name, names, where)
            if unit:
                _check_unit(limit, name, unit, where)
            if better:
                _check_direction(limit, name, better, where)


def check_settings(cluster: Cluster, known: Mapping[str, Iterable[str]]) -> None:
    """Refuse settings that nobody reads: `known` maps a table ("gemm") to its keys. Raises ClusterError."""
    for table, fields in cluster.settings.items():
        if table in known:
            Table(where=f"{cluster.path} [{table}]", fields=fields).only(known[table])


def _matching(pattern: str, names: Mapping[str, tuple[str, str]], where: str) -> list[str]:
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise _unknown(pattern, names, where)
    return found


def _unknown(pattern: str, names: Iterable[str], where: str) -> ClusterError:
    names = sorted(names)
    family = pattern.split(".")[0]
    kin = [name for name in names if name.startswith(f"{family}.")]
    families = sorted({name.split(".")[0] for name in names})
    shown = f"{family} emits: {', '.join(kin)}" if kin else f"families: {', '.join(families)}"
    return ClusterError(f"{where}: no benchmark emits {pattern!r}{near(pattern, names)}; {shown}")


def _check_ratio(limit: Limit, other: str, name: str, names: Mapping[str, tuple[str, str]], where: str) -> None:
    if other not in names:
        raise _unknown(other, names, f"{where} ratio_to")
    unit, other_unit = names[name][0], names[other][0]
    if unit != other_unit:
        raise ClusterError(f"{where}: {name} is in {unit}, {other} in {other_unit}: a ratio needs two of one unit")
    apart = any(k in limit.where and limit.where[k] != v for k, v in limit.ratio_where.items())
    if other == name and not apart:
        raise ClusterError(
            f"{where}: {name} as a ratio to itself is always 1: name another metric in ratio_to, "
            f"or let where and ratio_where give one param different values"
        )


def _check_unit(limit: Limit, name: str, unit: str, where: str) -> None:
    if limit.of == "value" and limit.unit != unit:
        raise ClusterError(f'{where}: unit = "{limit.unit}", but {name} is in {unit}: write the limit in {unit}')
    if limit.bound == "floor" and limit.value <= 0 and unit in POSITIVE:
        raise ClusterError(f"{where}: floor = {limit.value:g}: no {name} is below it: write a floor above zero")


def _check_direction(limit: Limit, name: str, better: str, where: str) -> None:
    """A physical limit bounds the good side, every other one the bad side."""
    if limit.physical or limit.bound in ("equal", GOOD_SIDE[better]):
        return
    raise ClusterError(
        f"{where}: a {limit.bound} on {name}, where {better} is {'right' if better == 'equal' else 'better'}: "
        f"write {GOOD_SIDE[better]}, or physical = true for a bound that nothing can pass"
    )
