"""The sizes of the reference model, and what follows from them by arithmetic.

A Shape is Llama-3's: RMSNorm, rotary positions, grouped-query attention, SwiGLU, an output head of its own.
Parameters and FLOPs are closed forms over these sizes; `tests/test_reference_model.py` holds them against
a model that is really built. Nothing here knows ranks, devices or torch.

>>> SHAPES["70b"].parameters
70553706496
>>> round(SHAPES["70b"].flops_per_token(8192) / 1e9, 2)
449.22
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One model's sizes. `dim` is also the width of all heads together."""

    name: str
    layers: int
    dim: int
    heads: int
    kv_heads: int  # key/value heads: each serves heads / kv_heads query heads
    ffn: int  # width inside the feed-forward
    vocab: int
    rope_theta: float = 500_000.0
    of_layers: int = 0  # layers of the model it was cut from; 0 where it is whole

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.dim // self.heads

    @property
    def label(self) -> str:
        """The name a result carries: "70b", or "70b (4 of 80 layers)" where it was cut."""
        return f"{self.name} ({self.layers} of {self.of_layers} layers)" if self.of_layers else self.name

    @property
    def block_matmul_parameters(self) -> int:
        """Parameters of one block's matrix products: q and output, k and v, three of the feed-forward."""
        kv_dim = self.kv_heads * self.head_dim
        return 2 * self.dim * self.dim + 2 * self.dim * kv_dim + 3 * self.dim * self.ffn

    @property
    def matmul_parameters(self) -> int:
        """Parameters that a token is multiplied with: all blocks and the head, no embedding, no norms."""
        return self.layers * self.block_matmul_parameters + self.dim * self.vocab

    @property
    def parameters(self) -> int:
        """All parameters: matrix products, embedding, and two norms a block and one at the end."""
        return self.matmul_parameters + self.vocab * self.dim + (2 * self.layers + 1) * self.dim

    def flops_per_token(self, sequence: int, *, causal: bool = True) -> float:
        """Model FLOPs of one token, forward and backward, in a sequence of `sequence` tokens.

        6 per matmul parameter (2 forward, 4 backward), and for the two products of attention 6 L d s where
        the causal half is counted, 12 L d s for the full square. The causal form is Megatron-LM's and
        NeMo's convention, the full one PaLM's (appendix B) and torchtitan's. Recomputation is not counted.
        """
        square = 12 * self.layers * self.dim * sequence
        return 6.0 * self.matmul_parameters + (square / 2 if causal else square)

    def recomputed_flops_per_token(self, sequence: int) -> float:
        """FLOPs of one token that full recomputation adds: what the hardware executes beside the model's own.

        Each block's forward pass without its last product (torch's checkpoint stops there), causal attention.
        """
        products = 2.0 * self.layers * (self.block_matmul_parameters - self.dim * self.ffn)
        return products + 2.0 * self.layers * self.dim * sequence

    def cut(self, layers: int) -> Shape:
        """The same model with fewer layers: each keeps its full size, and the label says so."""
        whole = self.of_layers or self.layers
        if not 1 <= layers <= whole:
            raise ValueError(f"{self.name} has {whole} layers: --layers {layers} must be 1 to {whole}")
        return self if layers == whole else dataclasses.replace(self, layers=layers, of_layers=whole)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape(name="tiny", layers=4, dim=256, heads=8, kv_heads=4, ffn=768, vocab=2048),
        Shape(name="8b", layers=32, dim=4096, heads=32, kv_heads=8, ffn=14_336, vocab=128_256),
        Shape(name="70b", layers=80, dim=8192, heads=64, kv_heads=8, ffn=28_672, vocab=128_256),
        Shape(name="405b", layers=126, dim=16_384, heads=128, kv_heads=8, ffn=53_248, vocab=128_256),
    )
}


def shape_of(model: str) -> Shape:
    """The shape of a named model. ValueError names the known ones."""
    if model not in SHAPES:
        raise ValueError(f"no model {model!r}: there are {', '.join(SHAPES)}")
    return SHAPES[model]
