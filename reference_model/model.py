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
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from reference_model.context import Context
from reference_model.shape import Shape

EPS = 1e-5
INIT_STD = 0.02


class Places(NamedTuple):
    """Where tokens stand in their sequence: rotary tables [sequence, head_dim / 2], and who sees whom."""

    cos: Tensor
    sin: Tensor
    mask: Tensor | None = None  # bool [queries, keys]; None: causal, in order


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions. Under tensor parallelism it sees its own heads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.context: Context | None = None
        kv_dim = shape.kv_heads * shape.head_dim
        self.wq = nn.Linear(shape.dim, shape.dim, bias=False)
        self.wk = nn.Linear(shape.dim, kv_dim, bias=False)
        self.wv = nn.Linear(shape.dim, kv_dim, bias=False)
        self.wo = nn.Linear(shape.dim, shape.dim, bias=False)

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """[batch, sequence, dim] to the same."""
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, places), rotate(k, places)
        if self.context is not None:
            k, v = self.context.gather(k), self.context.gather(v)
        y = scaled_dot_product_attention(q, k, v, attn_mask=places.mask, is_causal=places.mask is None, enable_gqa=True)
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

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """[batch, sequence, dim] to the same."""
        x = x + self.attention(self.attention_norm(x), places)
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
        self.context: Context | None = None
        self._places: Places | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [batch, sequence] (first stage) or activations [batch, sequence, dim] to activations or logits."""
        length = x.shape[1] * (1 if self.embedding else self.sequence_shards)
        if self.embedding is not None:
            x = materialised(self.embedding(x))
        places = self.places(length, x)
        for block in self.layers.values():
            x = block(x, places)
        if self.head is not None and self.norm is not None:
            x = self.head(self.norm(x))
        return x

    def places(self, length: int, x: Tensor) -> Places:
        """Where this rank's `length` tokens stand. Made once, and no buffer: a meta start would leave it garbage."""
        if self._places is None or self._places.cos.shape[0] != length or self._places.cos.dtype != x.dtype:
            positions, mask = torch.arange(length), None
            if self.context is not None:
                positions = self.context.positions(length * self.context.size)
                mask = self.context.mask(length * self.context.size).to(x.device)
            angles = rope_angles(positions.to(x.device), self.shape.head_dim, self.shape.rope_theta)
            self._places = Places(cos=angles.cos().to(x.dtype), sin=angles.sin().to(x.dtype), mask=mask)
        return self._places


def materialised(x: Tensor) -> Tensor:
    """A copy of the embedding's output, which waits for its asynchronous collective.

    Without it a compiled block under tensor parallelism with FSDP2 gives the embedding a gradient of
    exactly zero, and the loss does not show it (torch 2.13).
    """
    return x.clone()


def rope_angles(positions: Tensor, head_dim: int, theta: float) -> Tensor:
    """Rotation of each position and pair of channels, float64 [positions, head_dim / 2] (RoFormer, section 3.2)."""
    rates = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64, device=positions.device) / head_dim)
    return positions.double()[:, None] * rates


def rotate(x: Tensor, places: Places) -> Tensor:
    """Rotary positions applied to [batch, heads, sequence, head_dim]; pairs are (i, i + head_dim / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * places.cos - b * places.sin, b * places.cos + a * places.sin), dim=-1)


def initialise(module: nn.Module, *, seed: int, prefix: str = "") -> None:
    """Fill parameters in place from names and `seed` alone: every layout and type starts from the same weights.

    Norms are 1, everything else normal with standard deviation 0.02, drawn in float32. A DTensor takes its own
    slice of the whole tensor, which is drawn on the device one parameter at a time. Meta tensors stay as they are.
    """
    for name, parameter in module.named_parameters(prefix=prefix):
        if parameter.is_meta:
            continue
        whole = torch.empty(parameter.shape, dtype=torch.float32, device=parameter.device)
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
