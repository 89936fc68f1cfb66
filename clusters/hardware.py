"""GPU models by the name this suite uses or by the name the driver prints; facts in clusters/hardware.toml.

Unknown hardware is an error with a cure, never a default peak: a wrong peak makes every MFU wrong.

>>> gpu("h100-sxm").bf16_flops
989000000000000.0
>>> identify("NVIDIA H200").sku
'h200-sxm'
"""

from __future__ import annotations

import functools
from pathlib import Path

from clusters.cluster import Gpu
from clusters.table import ClusterError, Table, near, read

FACTS = Path(__file__).with_name("hardware.toml")
KEYS = ("names", "bf16_flops", "memory_bytes", "memory_bandwidth", "nvlink_bandwidth", "nvls", "source", "date")


@functools.cache
def gpus(path: Path = FACTS) -> dict[str, Gpu]:
    """Every known GPU model by SKU. ClusterError where the facts are broken or a driver's name occurs twice."""
    _, top = read(path)
    found = {sku: _gpu(sku, top.table(sku).only(KEYS)) for sku in top.fields}
    owner: dict[str, str] = {}
    for model in found.values():
        for name in model.names:
            if name in owner:
                raise top.error(f"{name!r} names both {owner[name]} and {model.sku}: leave it in one of them")
            owner[name] = model.sku
    return found


def gpu(sku: str) -> Gpu:
    """The facts of one GPU model. ClusterError lists the known ones and says where to add another."""
    models = gpus()
    if sku not in models:
        raise ClusterError(
            f"unknown GPU {sku!r}{near(sku, models)}; known: {', '.join(models)}; "
            f"for another add a table [{sku}] with its datasheet's numbers to clusters/hardware.toml"
        )
    return models[sku]


def identify(product_name: str) -> Gpu:
    """The model that the driver calls `product_name` (nvidia-smi --query-gpu=name). ClusterError says the cure."""
    for model in gpus().values():
        if product_name in model.names:
            return model
    names = [name for model in gpus().values() for name in model.names]
    raise ClusterError(
        f"unknown GPU product {product_name!r}{near(product_name, names)}; "
        f"add it to `names` of its model, or a new table, in clusters/hardware.toml"
    )


def _gpu(sku: str, table: Table) -> Gpu:
    names = table.fields.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise table.error('names must list what the driver calls it: names = ["NVIDIA H200"]')
    table.day("date")
    return Gpu(
        sku=sku,
        names=tuple(names),
        bf16_flops=table.positive("bf16_flops", 0),
        memory_bytes=int(table.positive("memory_bytes", 0)),
        memory_bandwidth=table.positive("memory_bandwidth", 0),
        nvlink_bandwidth=table.number("nvlink_bandwidth"),
        source=table.stated("source", example="datasheet of the vendor"),
        nvls=table.flag("nvls", False),
    )
