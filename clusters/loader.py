"""Read a cluster file: what the machine is, what is swept, and the limits, each with unit and source.

A file that is wrong in any way is refused here, before a rank is started: an unknown key, a limit without
unit, source or bound, a placeholder. Nothing is judged here; that is the work of `reports/judge.py`.

>>> load("local").ranks_per_node
4
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from clusters import hardware
from clusters.agreement import check_metrics, check_settings
from clusters.cluster import Cluster, Gpu, Network
from clusters.contradictions import Contract, contradictions
from clusters.limits import BOUNDS, REFERENCES, Exemption, Limit, Scalar, Waiver
from clusters.prices import prices
from clusters.shares import resolve
from clusters.table import ClusterError, Table, near, read

__all__ = ["ClusterError", "check_metrics", "check_settings", "known", "load"]

FOLDER = Path(__file__).parent
SETTINGS = ("campaign", "gemm", "memory", "collectives", "links", "hardware", "checkpoint", "reads", "training")
TOP = (
    "name", "description", "nodes", "ranks_per_node", "gpus_per_node", "gpu", "nodes_per_domain", "network",
    *SETTINGS, "contract", "prices", "limits", "waivers", "not_applicable",
)  # fmt: skip
LIMIT = (
    "metric", "unit", "source", *BOUNDS, "tolerance", "of", "ratio_to", "ratio_where", "scale",
    "where", "scope", "mandatory", "physical", "date", "algorithm",
)  # fmt: skip
OF = (*REFERENCES, "hardware")  # "hardware" becomes a plain value when it loads
SCOPE = ("sku", "nodes", "backend", "min_nodes", "max_nodes")  # the last two decide when it loads
BACKENDS = ("gloo", "nccl", "mpi")  # mpi: of imported results only
WAIVER = ("limit", "approver", "reason", "expires", "subject")
NETWORK = ("kind", "nics_per_node", "nic_rate", "oversubscription", "in_network", "source")
SLOWEST_NIC, FASTEST_NIC = 1e8, 1e12  # B/s: gigabit Ethernet has 125e6, the fastest ports of today 100e9
KINDS = ("infiniband", "roce", "ethernet")


def known() -> list[str]:
    """Names of the cluster files that ship with the suite."""
    return sorted(path.stem for path in FOLDER.glob("*.toml") if path != hardware.FACTS)


def load(name_or_path: str, *, nodes: int | None = None) -> Cluster:
    """The cluster of a shipped name (`local`) or of a file (`site/rack7.toml`); `nodes` of it where that is given.

    Raises ClusterError: one line with the file, the table, what is wrong and the cure.
    """
    path = _find(name_or_path)
    content, top = read(path)
    written = top.only(TOP).count("nodes", 1)
    if nodes is not None:
        top.fields["nodes"] = nodes  # limits of another number of nodes do not hold, those of this number do
    cluster = _machine(path, content, top)
    tables = top.tables("limits")
    found = {name: _limits(name, table, cluster) for name, table in tables.items()}
    limits = tuple(limit for group in found.values() for limit in group)
    names = tuple(limit.name for limit in limits)
    return dataclasses.replace(
        cluster,
        limits=limits,
        elsewhere=tuple(name for name, group in found.items() if not group),
        contradictions=(*contradictions(_contract(top.table("contract")), gpu=cluster.gpu), *_future(limits)),
        prices=prices(top.table("prices"), nodes=written),
        waivers=tuple(_waiver(name, table, names) for name, table in top.tables("waivers").items()),
        exemptions=_exemptions(top.table("not_applicable")),
    )


def _machine(path: Path, content: bytes, top: Table) -> Cluster:
    """What there is and what is swept, without limits."""
    gpus_per_node, ranks_per_node = _ranks(top)
    return Cluster(
        name=top.stated("name", example=path.stem) if "name" in top.fields else path.stem,
        path=str(path),
        text=content.decode(),
        sha256=hashlib.sha256(content).hexdigest(),
        description=top.text("description"),
        nodes=top.count("nodes", 1),
        nodes_per_domain=_domain(top),
        ranks_per_node=ranks_per_node,
        gpus_per_node=gpus_per_node,
        gpu=_gpu(top),
        network=_network(top.table("network")),
        settings={name: _settings(top.table(name)) for name in SETTINGS if name in top.fields},
    )


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix != ".toml" and os.sep not in name_or_path:
        if name_or_path not in known():
            raise ClusterError(
                f"unknown cluster {name_or_path!r}{near(name_or_path, known())}; known: {', '.join(known())}; "
                f"for your own give its file: --cluster path/to/file.toml"
            )
        path = FOLDER / f"{name_or_path}.toml"
    elif not path.is_file():
        raise ClusterError(f"no cluster file {name_or_path}: give a file, or a known name: {', '.join(known())}")
    path = path.absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _gpu(top: Table) -> Gpu | None:
    sku = top.text("gpu")
    if not sku:
        if "gpus_per_node" in top.fields:
            raise top.error(f"gpus_per_node without gpu: name the model, one of {', '.join(hardware.gpus())}")
        return None
    if "gpus_per_node" not in top.fields:
        raise top.error(f'gpu = "{sku}" without gpus_per_node: say how many a node has')
    try:
        return hardware.gpu(sku)
    except ClusterError as error:
        raise top.error(str(error)) from None


def _ranks(top: Table) -> tuple[int | None, int]:
    """GPUs and ranks per node; with GPUs there is one rank a GPU."""
    if "gpus_per_node" not in top.fields:
        return None, top.count("ranks_per_node", 1)
    gpus = top.count("gpus_per_node", 1)
    ranks = top.count("ranks_per_node", gpus)
    if ranks != gpus:
        problem = "more ranks than GPUs" if ranks > gpus else "some GPUs would not be tested"
        raise top.error(
            f"ranks_per_node = {ranks} with gpus_per_node = {gpus}: {problem}; "
            f"leave ranks_per_node out, there is one rank a GPU"
        )
    return gpus, ranks


def _domain(top: Table) -> int:
    """Nodes that one NVLink domain joins."""
    joined, nodes = top.count("nodes_per_domain", 1), top.count("nodes", 1)
    if nodes % joined:
        raise top.error(f"nodes = {nodes} is no whole number of NVLink domains: nodes_per_domain = {joined}")
    return joined


def _network(table: Table) -> Network:
    if not table.fields:
        return Network()
    table.only(NETWORK)
    kind = table.text("kind")
    if kind not in KINDS:
        raise table.error(f'kind = "{kind}"{near(kind, KINDS)}: must be one of {", ".join(KINDS)}')
    oversubscription = table.number("oversubscription", 1.0)
    if oversubscription < 1:
        raise table.error(f"oversubscription = {oversubscription:g} must be 1 (none) or more")
    return Network(
        kind=kind,
        nics_per_node=table.count("nics_per_node", 1),
        nic_rate=_nic_rate(table),
        oversubscription=oversubscription,
        in_network=table.flag("in_network", kind == "infiniband"),
        source=table.stated("source", example="datasheet: ConnectX-7, 400 Gb/s = 50 GB/s a port, one direction"),
    )


def _nic_rate(table: Table) -> float:
    """B/s of one NIC. A number that no NIC has is one of another unit."""
    rate = table.positive("nic_rate", 0.0)
    if not SLOWEST_NIC <= rate <= FASTEST_NIC:
        raise table.error(f"nic_rate = {rate:g} is no NIC's rate in B/s, one direction: 400 Gb/s are 50e9")
    return rate


def _future(limits: Iterable[Limit]) -> tuple[str, ...]:
    """A note on limits whose source was read, or measured, after today; an error would stop a node without a clock."""
    today = str(date.today())
    late = [limit.name for limit in limits if limit.date > today]
    return (
        (f"dated in the future (today is {today}): {', '.join(late)}; correct the date, or this clock",) if late else ()
    )


def _settings(table: Table) -> dict[str, Any]:
    """A benchmark's own settings: names are checked by its spec, values must be plain or lists of plain values."""
    for key, value in table.fields.items():
        for item in value if isinstance(value, list) else [value]:
            if not isinstance(item, str | int | float):
                raise table.error(f"{key} = {value!r} must be a plain value or a list of them")
            if isinstance(item, float):
                Table(where=table.where, fields={key: item}).number(key)
    return table.fields


def _contract(table: Table) -> Contract:
    """The contract's numbers as given."""
    table.only(field.name for field in dataclasses.fields(Contract))
    given: dict[str, Any] = {key: table.number(key) for key in table.fields if key != "rents"}
    rents = table.fields.get("rents", [])
    if not isinstance(rents, list):
        raise table.error(f"rents = {rents!r} must be a list of numbers")
    given["rents"] = tuple(Table(where=table.where, fields={"rents": rent}).positive("rents", 0) for rent in rents)
    return Contract(**given)


def _limits(name: str, table: Table, cluster: Cluster) -> tuple[Limit, ...]:
    """The limit of a table: none where it is for another number of nodes, several where it is of the hardware."""
    limit = _limit(name, table)
    scope, nodes = Table(where=f"{table.where} scope", fields=limit.scope), cluster.nodes
    if scope.count("nodes", nodes) != nodes or not scope.count("min_nodes", 1) <= nodes <= scope.count(
        "max_nodes", nodes
    ):
        return ()
    limit = dataclasses.replace(limit, scope={k: v for k, v in limit.scope.items() if k not in SCOPE[3:]})
    return resolve(limit, cluster=cluster, algorithm=table.text("algorithm")) if limit.of == "hardware" else (limit,)


def _limit(name: str, table: Table) -> Limit:
    table.only(LIMIT)
    bounds = [b for b in BOUNDS if b in table.fields]
    if len(bounds) != 1:
        raise table.error(f"{' and '.join(bounds) or 'no bound'}: give exactly one of {', '.join(BOUNDS)}")
    limit = Limit(
        name=name,
        metric=table.stated("metric", example="collectives.*.busbw"),
        unit=table.stated("unit", example="B/s"),
        source=table.stated("source", example="measured on 2026-11-30, 20 healthy nodes"),
        **{bounds[0]: table.number(bounds[0])},  # type: ignore[arg-type]
        tolerance=table.number("tolerance"),
        of=table.text("of", "value"),
        ratio_to=table.text("ratio_to") or None,
        ratio_where=table.scalars("ratio_where"),
        scale=table.positive("scale", 1.0),
        where=table.scalars("where"),
        scope=_scope(Table(where=f"{table.where} scope", fields=table.scalars("scope")).only(SCOPE)),
        mandatory=table.flag("mandatory", True),
        physical=table.flag("physical", False),
        date=str(table.day("date")) if "date" in table.fields else "",
    )
    _check_reference(limit, table)
    return limit


def _scope(table: Table) -> dict[str, Scalar]:
    """A scope that some run can have: a word that none has would switch the limit off, and nobody would know."""
    models = hardware.gpus()
    skus = ("cpu", *models, *(name for model in models.values() for name in model.names))
    for key, words, cure in (
        ("sku", skus, '; it is "cpu", or a GPU of clusters/hardware.toml: add yours there'),
        ("backend", BACKENDS, f"; it is one of {', '.join(BACKENDS)}"),
    ):
        word = table.text(key)
        if key in table.fields and word not in words:
            raise table.error(f'{key} = "{word}" is unknown{near(word, words)}{cure}')
    return table.fields


def _check_reference(limit: Limit, table: Table) -> None:
    """Only fields that mean something for `of`, and a ratio has no unit."""
    if limit.of not in OF:
        raise table.error(f'of = "{limit.of}"{near(limit.of, OF)}: must be one of {", ".join(OF)}')
    if limit.of == "metric" and not limit.ratio_to:
        raise table.error('of = "metric" without ratio_to: name the other metric, ratio_to = "gemm.flops"')
    if limit.of != "metric":
        for key in ("ratio_to", "ratio_where", "scale"):
            if key in table.fields:
                raise table.error(f'{key} needs of = "metric": add it, or leave {key} out')
    if limit.of != "hardware" and "algorithm" in table.fields:
        raise table.error('algorithm needs of = "hardware": add it, or leave algorithm out')
    if limit.of != "value" and limit.unit != "1":
        raise table.error(f'unit = "{limit.unit}" of a ratio: the limit is a share of {limit.of}, write unit = "1"')
    if limit.tolerance < 0 or ("tolerance" in table.fields and limit.bound != "equal"):
        raise table.error(f"tolerance = {limit.tolerance:g} goes with equal and is not negative")
    if limit.tolerance >= max(1.0, abs(limit.value)):
        raise table.error(
            f"tolerance = {limit.tolerance:g} of equal = {limit.value:g} lets everything pass: "
            f"write less than {max(1.0, abs(limit.value)):g}"
        )


def _waiver(name: str, table: Table, limits: tuple[str, ...]) -> Waiver:
    table.only(WAIVER)
    limit = table.stated("limit", example=limits[0] if limits else "the name of a limit")
    if limit not in limits:
        raise table.error(f"waives unknown limit {limit!r}{near(limit, limits)}; known: {', '.join(limits) or 'none'}")
    return Waiver(
        id=name,
        limit=limit,
        approver=table.stated("approver", example="name of who answers for it"),
        reason=table.stated("reason", example="cable 12 ordered, ticket 345"),
        expires=table.day("expires"),
        subject=table.text("subject", "*"),
    )


def _exemptions(table: Table) -> tuple[Exemption, ...]:
    return tuple(
        Exemption(metric=metric, reason=table.stated(metric, example="no NVLink in this machine"))
        for metric in table.fields
    )
