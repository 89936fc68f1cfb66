"""The reference model itself: a Llama-3 shaped transformer, or one pipeline stage of it.

Plain torch modules that know no ranks: `parallel.py` spreads them. Parameter names are the same on every
stage (`layers.3.attention.wq.weight`), so that gradients and checkpoints of any layout can be compared.
The rotary halves are split as Hugging Face does, so that weights map one to one.

>>> model = Transformer(shape_of("tiny")); initialise(model, seed=0)
>>> model(torch.zeros(1, 8, dtype=torch.long)).shape
torch.Size([1, 8, 2048])
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from reference_model.shape import Shape

EPS = 1e-5
INIT_STD = 0.02


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions. Under tensor parallelism it sees its own heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        kv_dim = shape.kv_heads * shape.head_dim
        self.wq = nn.Linear(shape.dim, shape.dim, bias=False)
        self.wk = nn.Linear(shape.dim, kv_dim, bias=False)
        self.wv = nn.Linear(shape.dim, kv_dim, bias=False)
        self.wo = nn.Linear(shape.dim, shape.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[batch, sequence, dim] to the same."""
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.w1 = nn.Linear(shape.dim, shape.ffn, bias=False)
        self.w2 = nn.Linear(shape.ffn, shape.dim, bias=False)
        self.w3 = nn.Linear(shape.dim, shape.ffn, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, dim] to the same."""
        return self.w2(silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind its norm and beside its residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.dim, eps=EPS)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.dim, eps=EPS)
        self.ffn = FeedForward(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[batch, sequence, dim] to the same."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.ffn(self.ffn_norm(x))


class Transformer(nn.Module):
    """The layers `layers` of a model; with the embedding if it is `first`, with norm and head if `last`."""

    def __init__(
        self, shape: Shape, *, layers: Iterable[int] | None = None, first: bool = True, last: bool = True
    ) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocab, shape.dim) if first else None
        self.layers = nn.ModuleDict({str(i): Block(shape) for i in (range(shape.layers) if layers is None else layers)})
        self.norm = nn.RMSNorm(shape.dim, eps=EPS) if last else None
        self.head = nn.Linear(shape.dim, shape.vocab, bias=False) if last else None
        self.sequence_shards = 1  # over how many ranks the activations between blocks are cut along the sequence
        self.positions: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, sequence] (first stage) or activations [batch, sequence, dim] to activations or logits."""
        length = x.shape[1] * (1 if self.embedding else self.sequence_shards)
        if self.embedding is not None:
            # The copy materialises the embedding's asynchronous collective. Without it a compiled block under
            # tensor parallelism with FSDP2 gives the embedding a gradient of exactly zero (torch 2.13).
            x = self.embedding(x).clone()
        cos, sin = self._rope(length, x)
        for block in self.layers.values():
            x = block(x, cos, sin)
        if self.head is not None and self.norm is not None:
            x = self.head(self.norm(x))
        return x

    def _rope(self, length: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary tables [length, head_dim / 2]: computed once, never stored (a meta start would leave garbage)."""
        if self.positions is None or self.positions[0].shape[0] != length or self.positions[0].dtype != x.dtype:
            angles = rope_angles(length, self.shape.head_dim, self.shape.rope_theta, x.device)
            self.positions = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return self.positions


def rope_angles(length: int, head_dim: int, theta: float, device: torch.device) -> Tensor:
    """Rotation of each position and pair of channels, float64 [length, head_dim / 2] (RoFormer, section 3.2)."""
    rates = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
    return torch.arange(length, dtype=torch.float64, device=device)[:, None] * rates


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions applied to [batch, heads, sequence, head_dim]; pairs are (i, i + head_dim / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def initialise(module: nn.Module, *, seed: int, prefix: str = "") -> None:
    """Fill parameters in place from their names and `seed` alone: every layout starts from the same weights.

    Norms are 1, everything else normal with standard deviation 0.02. A DTensor takes its own slice of the
    whole tensor, which is drawn on the device one parameter at a time.
    """
    for name, parameter in module.named_parameters(prefix=prefix):
        whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=parameter.device)
        if "norm" in name:
            whole.fill_(1.0)
        else:
            generator = torch.Generator(parameter.device).manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
            whole.normal_(std=INIT_STD, generator=generator)
        with torch.no_grad():
            if isinstance(parameter, DTensor):
                cut = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
                parameter.to_local().copy_(cut.to_local())
            else:
                parameter.copy_(whole)
