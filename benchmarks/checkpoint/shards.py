"""Which bytes each rank of a training job saves: the reference model under a layout, to the byte.

Tensor parallelism cuts a matrix along its rows or columns, pipeline stages hold ranges of layers, and FSDP2
cuts what is left along its rows. What several ranks hold alike (norms over tensor parallel ranks, copies of
HSDP) is saved once. No torch here: the plan of 512 ranks is made on a laptop.

>>> plan = [rank_shards(SHAPES["70b"], Layout(tp=8, pp=4, dp=16), rank, "mixed") for rank in (0, 511)]
>>> [sum(shard.bytes for shard in shards) for shards in plan]
[1986917320, 1986924488]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from clusters.physics import CHECKPOINT_BYTES
from reference_model.layout import Layout
from reference_model.shape import SHAPES, Shape

ITEM_BYTES = {"bfloat16": 2, "float32": 4, "int64": 8, "uint8": 1}
CONTENTS = {
    # contents -> what is kept of each parameter: (part, dtype); bytes as in clusters.physics.CHECKPOINT_BYTES
    "weights": (("model", "bfloat16"),),
    "mixed": (
        ("model", "bfloat16"), ("optimizer.master", "float32"),
        ("optimizer.first_moment", "float32"), ("optimizer.second_moment", "float32"),
    ),
    "fp32": (("model", "float32"), ("optimizer.first_moment", "float32"), ("optimizer.second_moment", "float32")),
}  # fmt: skip
RANDOM_STATE_BYTES = 5056  # of torch's CPU generator
STEP_BYTES = 8

__all__ = ["CHECKPOINT_BYTES", "CONTENTS", "SHAPES", "Layout", "Parameter", "Shard", "rank_shards", "total_bytes"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of the model. `cut` is the dimension that tensor parallelism cuts; None: every rank has it."""

    name: str
    shape: tuple[int, ...]
    cut: int | None


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What one rank holds of one saved tensor, and where it lies in the whole."""

    name: str  # of the whole tensor: optimizer.master.layers.3.attention.wq.weight
    dtype: str
    whole: tuple[int, ...]  # shape of the whole tensor
    shape: tuple[int, ...]  # of this rank's part
    offset: tuple[int, ...]  # of this rank's part in the whole
    cut: int | None = None  # dimension of tensor parallelism; None: not cut by it
    sharded: bool = True  # False: a plain tensor, not spread over ranks
    saved_here: bool = True  # False: another rank saves this part, which both hold

    @property
    def part(self) -> str:
        """This part's name, unique in the checkpoint: tensor and offset."""
        return f"{self.name}@{','.join(map(str, self.offset))}"

    @property
    def bytes(self) -> int:
        """Bytes of this rank's part."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def rank_shards(shape: Shape, layout: Layout, rank: int, contents: str) -> tuple[Shard, ...]:
    """Everything `rank` holds of a checkpoint, in the order of the model: parts of tensors, step, random state.

    Raises ValueError for unknown contents and for sizes that tensor parallelism does not divide.
    """
    if contents not in CONTENTS:
        raise ValueError(f"checkpoint: no contents {contents!r}: there are {', '.join(CONTENTS)}")
    tp = rank % layout.tp
    data_parallel = rank // layout.tp % layout.dp
    stage = rank // (layout.tp * layout.dp)
    copy, part = divmod(data_parallel, layout.copies_over)
    shards = [
        _shard(parameter, kept, dtype, layout, tp=tp, part=part, copy=copy)
        for kept, dtype in CONTENTS[contents]
        for parameter in stage_parameters(shape, layout, stage)
    ]
    step = Shard(name="step", dtype="int64", whole=(1,), shape=(1,), offset=(0,), sharded=False, saved_here=rank == 0)
    state = Shard(
        name=f"random_state.rank{rank}", dtype="uint8", whole=(RANDOM_STATE_BYTES,), shape=(RANDOM_STATE_BYTES,),
        offset=(0,), sharded=False,
    )  # fmt: skip
    return (*(s for s in shards if s.bytes), step, state)


def total_bytes(shape: Shape, layout: Layout, contents: str) -> int:
    """Bytes of the whole checkpoint: every parameter once, the step, and each rank's random state."""
    if contents not in CONTENTS:
        raise ValueError(f"checkpoint: no contents {contents!r}: there are {', '.join(CONTENTS)}")
    return shape.parameters * CHECKPOINT_BYTES[contents] + STEP_BYTES + layout.ranks * RANDOM_STATE_BYTES


def stage_parameters(shape: Shape, layout: Layout, stage: int) -> list[Parameter]:
    """The parameters of one pipeline stage; the first has the embedding, the last the norm and the head."""
    share, left = divmod(shape.layers, layout.pp)
    first = stage * share + min(stage, left)
    found: list[Parameter] = []
    if stage == 0:
        found.append(Parameter(name="embedding.weight", shape=(shape.vocab, shape.dim), cut=0))
    for layer in range(first, first + share + (stage < left)):
        found += _layer_parameters(shape, f"layers.{layer}")
    if stage == layout.pp - 1:
        found.append(Parameter(name="norm.weight", shape=(shape.dim,), cut=None))
        found.append(Parameter(name="head.weight", shape=(shape.vocab, shape.dim), cut=0))
    return found


def _layer_parameters(shape: Shape, prefix: str) -> list[Parameter]:
    kv = shape.kv_heads * shape.head_dim
    rows = {
        "attention.wq": (shape.dim, shape.dim), "attention.wk": (kv, shape.dim), "attention.wv": (kv, shape.dim),
        "ffn.w1": (shape.ffn, shape.dim), "ffn.w3": (shape.ffn, shape.dim),
    }  # fmt: skip
    columns = {"attention.wo": (shape.dim, shape.dim), "ffn.w2": (shape.dim, shape.ffn)}
    norms = ("attention_norm", "ffn_norm")
    return [
        *(Parameter(name=f"{prefix}.{n}.weight", shape=s, cut=0) for n, s in rows.items()),
        *(Parameter(name=f"{prefix}.{n}.weight", shape=s, cut=1) for n, s in columns.items()),
        *(Parameter(name=f"{prefix}.{n}.weight", shape=(shape.dim,), cut=None) for n in norms),
    ]


def _shard(parameter: Parameter, kept: str, dtype: str, layout: Layout, *, tp: int, part: int, copy: int) -> Shard:
    """This rank's part: cut by tensor parallelism first, then its rows shared out as torch.chunk does."""
    shape, offset = list(parameter.shape), [0] * len(parameter.shape)
    if parameter.cut is not None:
        whole = shape[parameter.cut]
        if whole % layout.tp:
            raise ValueError(
                f"checkpoint: {parameter.name} has {whole} rows or columns, which tp{layout.tp} does not divide"
            )
        shape[parameter.cut] = whole // layout.tp
        offset[parameter.cut] = tp * shape[parameter.cut]
    rows = -(-shape[0] // layout.copies_over)
    first = min(part * rows, shape[0])
    offset[0] += first
    shape[0] = min(rows, shape[0] - first)
    return Shard(
        name=f"{kept}.{parameter.name}", dtype=dtype, whole=parameter.shape, shape=tuple(shape), offset=tuple(offset),
        cut=parameter.cut, saved_here=copy == 0 and (parameter.cut is not None or tp == 0),
    )  # fmt: skip
