"""Products in float8: each operand scaled by its own largest value, sums in float32, weights kept as they are.

Forward uses e4m3 (more fraction), gradients e5m2 (more range), as Micikevicius et al. 2022 propose; one dynamic scale
a tensor. Only the blocks' seven products: norms, attention, embedding, head and the loss stay in bf16. Float8 needs
tensor cores of compute capability 8.9 or more; torch's CPU product has the same arithmetic and serves the tests.

>>> layer = Float8Linear(64, 32, bias=False).bfloat16()
>>> layer(torch.randn(16, 64, dtype=torch.bfloat16)).shape
torch.Size([16, 32])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Placement, Shard

from reference_model.model import Transformer

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
CAPABILITY = (8, 9)  # of CUDA devices with float8 tensor cores: Ada, Hopper and later


def why_not(device: torch.device, capability: tuple[int, int] | None = None) -> str:
    """Why float8 cannot run on a device, with the cure; "" where it can."""
    if device.type != "cuda":
        return f"a {device.type} has no float8 tensor cores: use bf16"
    found = capability or torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        return (
            f"this GPU (compute capability {found[0]}.{found[1]}) has no float8 tensor cores (8.9 and later): use bf16"
        )
    return ""


def use_float8(model: Transformer) -> None:
    """Replace the products of all blocks, in place; their parameters stay the same."""
    for block in model.layers.values():
        for part in (block.attention, block.ffn):
            for name, layer in list(part.named_children()):
                if isinstance(layer, nn.Linear):
                    layer.__class__ = Float8Linear
                    setattr(part, name, layer)


class Float8Linear(nn.Linear):
    """y = x W^T with all three products in float8. Also of tensors that tensor parallelism has cut."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        if not isinstance(self.weight, DTensor):
            return product(x, self.weight)
        return _cut(x, self.weight)


def _cut(x: Tensor, weight: DTensor) -> Tensor:
    """The product of this rank's part. By columns the input's gradient is a part of a sum, by rows the result is."""
    mesh, (placement,) = weight.device_mesh, weight.placements
    assert isinstance(x, DTensor) and isinstance(placement, Shard)
    by_columns = placement.dim == 0
    gradient: list[Placement] = [Partial()] if by_columns else list(x.placements)
    own = product(x.to_local(grad_placements=gradient), weight.to_local())
    result: list[Placement] = [Shard(x.ndim - 1)] if by_columns else [Partial()]
    whole: Tensor = DTensor.from_local(own, mesh, result, run_check=False)
    return whole


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in float8, of the type of x."""
    y: Tensor = _Product.apply(x.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    return y.unflatten(0, x.shape[:-1])


class _Product(torch.autograd.Function):
    """[tokens, in] by [out, in]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, FORWARD)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        return multiply(gradient, weight.T, BACKWARD), multiply(gradient.T, x.T, BACKWARD)


def multiply(a: Tensor, b: Tensor, left: torch.dtype) -> Tensor:
    """a b^T, a in `left` and b in e4m3; both may be of any strides. The second operand must lie by columns."""
    (low, scale), (other, other_scale) = scaled(a, left), scaled(b, FORWARD)
    return torch._scaled_mm(low, other.T, scale_a=scale, scale_b=other_scale, out_dtype=a.dtype)


def scaled(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x by rows in float8, and the float32 number that it must be multiplied with. NaN stays what it is."""
    largest = x.abs().amax().float().clamp(min=1e-12)
    scale = largest / torch.finfo(dtype).max
    return (x.float() / scale).to(dtype).contiguous(), scale
