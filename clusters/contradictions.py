"""What a contract says that cannot be, or cannot be at once: each with its arithmetic.

A cluster file may hold a contract's numbers as given, in `[contract]`. They are not limits: those are written as
limits. Here they are held against physics and against each other, so that a healthy cluster is not blamed for a
sentence in a document. The lines are shown wherever the cluster file is used; they judge nothing.

>>> contradictions(Contract(save_s=30, storage_rate=200e9), gpu=None)[0]
'save in 30 s, storage at 200 GB/s: 988 GB / 30 s = 33 GB/s, 16% of that; at 200 GB/s a save takes 4.9 s'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusters.cluster import Gpu
from clusters.physics import Llama, checkpoint_bytes

DAYS_A_MONTH = 365.25 / 12
LLAMA_70B = Llama(layers=80, width=8192, ffn=28672, heads=64, kv_heads=8, vocabulary=128256)
BEST_MFU = 0.509  # of 70B in bf16 on H100, causal convention: the highest that NVIDIA has published
CLOSE = 0.02  # two numbers this near agree


@dataclass(frozen=True, kw_only=True)
class Contract:
    """A contract's numbers as given; 0 or empty where it gives none. Its model is Llama-3-70B."""

    mfu: float = 0.0  # share of the dense bf16 peak
    tokens_rate: float = 0.0  # tokens/s of one GPU
    sequence: int = 8192  # tokens
    memory_bandwidth: float = 0.0  # B/s of one GPU
    tf32_flops: float = 0.0  # FLOP/s of one GPU
    save_s: float = 0.0  # of a checkpoint: bf16 weights, fp32 master copy and both Adam moments
    storage_rate: float = 0.0  # B/s of the file system
    use_4_stages: float = 0.0  # share of the time that a pipeline of 4 stages works
    use_8_stages: float = 0.0
    network_share_ndr400: float = 0.0  # share of a step that waits for the network
    network_share_hdr200: float = 0.0
    price: float = 0.0  # of the cluster
    running_cost: float = 0.0  # a month
    rents: tuple[float, ...] = ()  # an hour, of as many GPUs
    hours_a_day: float = 24.0
    break_even_months: float = 0.0


def contradictions(contract: Contract, *, gpu: Gpu | None) -> tuple[str, ...]:
    """One line for each contradiction, with the arithmetic; none where there is none."""
    return tuple(line for check in CHECKS if (line := check(contract, gpu)))


def _throughput(c: Contract, gpu: Gpu | None) -> str:
    if not (c.mfu and c.tokens_rate and gpu):
        return ""
    per_token = LLAMA_70B.flops_per_token(sequence=c.sequence)
    share, rate = per_token * c.tokens_rate / gpu.bf16_flops, c.mfu * gpu.bf16_flops / per_token
    if abs(share - c.mfu) <= CLOSE:
        return ""
    return (
        f"{c.mfu:.0%} MFU, {c.tokens_rate:,.0f} tokens/s/GPU: {per_token / 1e9:.1f} GFLOP a token x "
        f"{c.tokens_rate:,.0f}/s / {gpu.bf16_flops / 1e12:,.0f} TFLOP/s = {share:.0%} MFU; "
        f"{c.mfu:.0%} would be {rate:,.0f} tokens/s/GPU"
    )


def _best_mfu(c: Contract, _gpu: Gpu | None) -> str:
    if c.mfu <= BEST_MFU:
        return ""
    return f"{c.mfu:.0%} MFU: the best that NVIDIA has published for 70B in bf16 on H100 is {BEST_MFU:.1%}"


def _memory(c: Contract, gpu: Gpu | None) -> str:
    if not (c.memory_bandwidth and gpu) or abs(c.memory_bandwidth / gpu.memory_bandwidth - 1) <= CLOSE:
        return ""
    return (
        f"memory at {c.memory_bandwidth / 1e12:g} TB/s: {gpu.sku} has {gpu.memory_bandwidth / 1e12:g} TB/s, "
        f"{gpu.memory_bandwidth / c.memory_bandwidth:.2f} times that ({gpu.source})"
    )


def _tf32(c: Contract, gpu: Gpu | None) -> str:
    if not (c.tf32_flops and gpu) or c.tf32_flops <= gpu.bf16_flops / 2 * (1 + CLOSE):
        return ""
    return (
        f"TF32 at {c.tf32_flops / 1e12:,.0f} TFLOP/s: {gpu.sku} has {gpu.bf16_flops / 1e12:,.0f} dense in bf16, "
        f"and TF32 is half of that, {gpu.bf16_flops / 2e12:,.0f}"
    )


def _save(c: Contract, _gpu: Gpu | None) -> str:
    if not (c.save_s and c.storage_rate):
        return ""
    size = checkpoint_bytes(parameters=LLAMA_70B.parameters, contents="mixed")
    needed, share = size / c.save_s, size / c.save_s / c.storage_rate
    if abs(share - 1) <= CLOSE:
        return ""
    return (
        f"save in {c.save_s:g} s, storage at {c.storage_rate / 1e9:g} GB/s: {size / 1e9:.0f} GB / {c.save_s:g} s = "
        f"{needed / 1e9:.0f} GB/s, {share:.0%} of that; at {c.storage_rate / 1e9:g} GB/s a save takes "
        f"{size / c.storage_rate:.1f} s"
    )


def _bubble(c: Contract, _gpu: Gpu | None) -> str:
    """Use of p stages is m / (m + p-1): what 4 stages show tells m, and m tells what 8 should show."""
    if not (0 < c.use_4_stages < 1 and c.use_8_stages):
        return ""
    m = 3 * c.use_4_stages / (1 - c.use_4_stages)
    use = m / (m + 7)
    if abs(use - c.use_8_stages) <= CLOSE:
        return ""
    return (
        f"{c.use_4_stages:.0%} use with 4 stages, {c.use_8_stages:.0%} with 8: m / (m + 3) = {c.use_4_stages:.0%} "
        f"makes m = {m:.1f} micro-batches, and m / (m + 7) = {use:.0%}"
    )


def _network(c: Contract, _gpu: Gpu | None) -> str:
    """Where the wait is for bandwidth, half the rate doubles it."""
    x = c.network_share_ndr400
    if not (x and c.network_share_hdr200):
        return ""
    doubled = 2 * x / (1 - x + 2 * x)
    if doubled <= c.network_share_hdr200 + CLOSE:
        return ""
    return (
        f"{x:.0%} of a step on NDR400, {c.network_share_hdr200:.0%} on HDR200: half the rate doubles the wait, "
        f"2 x {x * 100:.0f} / ({(1 - x) * 100:.0f} + 2 x {x * 100:.0f}) = {doubled:.0%}"
    )


def _break_even(c: Contract, _gpu: Gpu | None) -> str:
    if not (c.price and c.rents and c.break_even_months):
        return ""
    saved = {rent: rent * c.hours_a_day * DAYS_A_MONTH - c.running_cost for rent in c.rents}
    months = {rent: c.price / saving for rent, saving in saved.items() if saving > 0}
    if any(abs(m / c.break_even_months - 1) <= CLOSE for m in months.values()):
        return ""
    shown = "; ".join(
        f"at {rent:,.0f} an hour {c.price:,.0f} / ({rent:,.0f} x {c.hours_a_day:g} x {DAYS_A_MONTH:.1f} - "
        f"{c.running_cost:,.0f}) = {months[rent]:.1f}" if rent in months else f"at {rent:,.0f} an hour never"
        for rent in c.rents
    )  # fmt: skip
    return f"{c.break_even_months:g} months to break even: {shown}"


CHECKS: tuple[Callable[[Contract, Gpu | None], str], ...] = (
    _throughput, _best_mfu, _memory, _tf32, _save, _bubble, _network, _break_even,
)  # fmt: skip
