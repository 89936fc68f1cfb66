"""What a model costs and what a schedule can reach: FLOPs, MFU, bubbles, checkpoint sizes and intervals.

Formulas only, each with its source; nothing is measured or judged. What the wires can carry is next door, in
`clusters/line_rate.py` and `clusters/latency.py`.

>>> llama = Llama(layers=80, width=8192, ffn=28672, heads=64, kv_heads=8, vocabulary=128256)
>>> llama.parameters, llama.matmul_parameters
(70553706496, 69501714432)
>>> round(llama.flops_per_token(sequence=8192) / 1e9, 2)
449.22
"""

from __future__ import annotations

import math
from dataclasses import dataclass

CHECKPOINT_BYTES = {
    # contents -> bytes per parameter
    "weights": 2,  # bf16
    "mixed": 14,  # bf16 weights, and the fp32 master copy and both Adam moments
    "fp32": 12,  # fp32 weights and both Adam moments
}


@dataclass(frozen=True, kw_only=True)
class Llama:
    """The shape of a Llama model: pre-norm, SwiGLU, grouped-query attention, untied embeddings."""

    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            _require(value >= 1, f"{name} = {value} must be at least 1")
        _require(self.width % self.heads == 0, f"width {self.width} does not divide into {self.heads} heads")
        _require(self.heads % self.kv_heads == 0, f"{self.heads} heads do not divide over {self.kv_heads} kv heads")

    @property
    def matmul_parameters(self) -> int:
        """Parameters inside matrix products: attention, feed-forward and output head, not the embedding table."""
        kv_width = self.width // self.heads * self.kv_heads
        attention = 2 * self.width * self.width + 2 * self.width * kv_width
        feed_forward = 3 * self.width * self.ffn
        return self.layers * (attention + feed_forward) + self.width * self.vocabulary

    @property
    def parameters(self) -> int:
        """All parameters: matrix products, embedding table, two norms a layer and the last one."""
        return self.matmul_parameters + self.vocabulary * self.width + (2 * self.layers + 1) * self.width

    def flops_per_token(self, *, sequence: int, causal: bool = True) -> float:
        """FLOPs of one token, forward and backward; see `flops_per_token`."""
        return flops_per_token(
            matmul_parameters=self.matmul_parameters, layers=self.layers, width=self.width, sequence=sequence,
            causal=causal,
        )  # fmt: skip


def flops_per_token(*, matmul_parameters: int, layers: int, width: int, sequence: int, causal: bool = True) -> float:
    """Model FLOPs of one token, forward and backward: 6 N + 6 L d s (causal) or 6 N + 12 L d s (full square).

    `width` d is heads x head size, `sequence` s is in tokens. 2 FLOPs a multiply-add, one forward and two backward
    products. Recompute is not in it. Source: PaLM paper, appendix B (12 L d s); half of it for the causal triangle.
    """
    for name, value in (("matmul_parameters", matmul_parameters), ("sequence", sequence)):
        _require(value >= 1, f"{name} = {value} must be at least 1")
    _require(layers >= 0 and width >= 0, f"layers = {layers} and width = {width} must not be negative")
    return 6.0 * matmul_parameters + (6.0 if causal else 12.0) * layers * width * sequence


def mfu(*, tokens_rate: float, flops_per_token: float, gpus: int, peak: float) -> float:
    """Model FLOP utilisation, 0 to 1: FLOPs per token x tokens/s of all GPUs / (GPUs x dense peak FLOP/s).

    Above 1 the measurement or the peak is wrong. Source: PaLM paper, appendix B.
    """
    _require(gpus >= 1 and peak > 0, f"MFU needs GPUs and a peak, not {gpus} GPUs of {peak:g} FLOP/s")
    _require(tokens_rate >= 0 and flops_per_token > 0, "MFU needs a rate of tokens and FLOPs per token above zero")
    return tokens_rate * flops_per_token / (gpus * peak)


def hfu(*, mfu: float, recomputed: float) -> float:
    """Hardware FLOP utilisation: MFU and the forward pass done again for a share `recomputed` (0 to 1).

    The forward pass is one third of the model's FLOPs, so HFU = MFU (3 + recomputed) / 3.
    """
    _require(0 <= recomputed <= 1, f"recomputed = {recomputed:g} is a share from 0 to 1")
    return mfu * (3 + recomputed) / 3


def bubble_share(*, stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of a pipeline step in which a rank waits: (p-1) / (v m + p-1), p ranks, m micro-batches, v chunks a rank.

    1F1B and GPipe with v = 1, interleaved 1F1B above (it needs m to be a multiple of p). Equal stages and free
    communication are assumed. Source: Narayanan et al. 2021 (Megatron-LM), section 2.2, as a share of the whole step.
    """
    for name, value in (("stages", stages), ("micro_batches", micro_batches), ("chunks", chunks)):
        _require(value >= 1, f"{name} = {value} must be at least 1")
    if chunks > 1:
        _require(micro_batches % stages == 0, f"interleaving needs micro-batches in multiples of {stages} stages")
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def checkpoint_bytes(*, parameters: int, contents: str) -> int:
    """Bytes of a checkpoint.

    A parameter is 2 bytes in "weights" (bf16), 14 in "mixed" (bf16 weights, fp32 master copy and both Adam moments),
    12 in "fp32" (weights and both moments).
    """
    _require(contents in CHECKPOINT_BYTES, f"no contents {contents!r}: one of {', '.join(CHECKPOINT_BYTES)}")
    _require(parameters >= 1, f"parameters = {parameters} must be at least 1")
    return parameters * CHECKPOINT_BYTES[contents]


def job_mtbf(*, gpus: int) -> float:
    """Mean seconds between failures of a job on so many GPUs, where nothing better is known.

    419 unexpected interruptions in 54 days of 16,384 H100: one a GPU in 50,000 hours. Source: The Llama 3 Herd of
    Models (2024), section 3.3.4.

    >>> round(job_mtbf(gpus=512) / 3600)
    99
    """
    _require(gpus > 0, f"{gpus} GPUs: at least one must run the job")
    return 54 * 86_400 * 16_384 / 419 / gpus


def young_interval(*, save_s: float, mtbf_s: float) -> float:
    """Seconds of work between checkpoints that lose least: sqrt(2 C M). Source: Young 1974.

    Good while the save time C is far below the mean time between failures M; `daly_interval` also beyond.
    """
    _require(save_s > 0 and mtbf_s > 0, "save time and time between failures must be above zero")
    return math.sqrt(2 * save_s * mtbf_s)


def daly_interval(*, save_s: float, mtbf_s: float) -> float:
    """As `young_interval`, of higher order. Source: Daly 2006, equation 37.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + C / 18M) - C while C < 2M, else M.
    """
    young = young_interval(save_s=save_s, mtbf_s=mtbf_s)
    if save_s >= 2 * mtbf_s:
        return mtbf_s
    return young * (1 + math.sqrt(save_s / (2 * mtbf_s)) / 3 + save_s / (18 * mtbf_s)) - save_s


def lost_share(*, interval_s: float, save_s: float, restart_s: float, mtbf_s: float) -> float:
    """Share of time lost to checkpoints and failures, first order: C / (T + C) + (R + (T + C) / 2) / M, at most 1.

    T work between saves, C save, R restart, M mean time between failures of the whole job. Source: Young 1974.
    """
    for name, value in (("interval_s", interval_s), ("mtbf_s", mtbf_s)):
        _require(value > 0, f"{name} = {value:g} must be above zero")
    _require(save_s >= 0 and restart_s >= 0, "save and restart times must not be negative")
    period = interval_s + save_s
    return min(1.0, save_s / period + (restart_s + period / 2) / mtbf_s)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)
