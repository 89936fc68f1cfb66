"""Runs one training job on this rank: forward, backward, clip, optimizer step.

The loss is the sum over tokens divided by the tokens of the whole step; gradients are summed over
micro-batches and data parallel ranks. Clipping uses the true global norm, over every axis of the grid.

>>> trainer = Trainer(job, Grid.open(job.layout, "cpu"), torch.device("cpu"), dtype=torch.float32)
>>> trainer.step(0).loss                                       # on every rank of the layout
7.62...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from reference_model.job import Job
from reference_model.ledger import Ledger
from reference_model.packed import PackedTokens
from reference_model.parallel import Grid, build_schedule, build_stages
from reference_model.tokens import SyntheticTokens


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step reports, the same on every rank."""

    loss: float  # mean over all tokens of the step
    gradient_norm: float  # before clipping


def tokens_of(job: Job) -> SyntheticTokens | PackedTokens:
    """Where the job's tokens come from. ValueError where its file is missing or of another vocabulary."""
    if job.data:
        return PackedTokens.open(job.data, vocab=job.shape.vocab, sequence=job.sequence, batch=job.batch)
    return SyntheticTokens(vocab=job.shape.vocab, sequence=job.sequence, seed=job.seed)


class Trainer:
    """One rank's part of a training job."""

    def __init__(
        self,
        job: Job,
        grid: Grid,
        device: torch.device,
        *,
        dtype: torch.dtype,
        learning_rate: float = 3e-4,
        clip: float = 1.0,
    ) -> None:
        job.check()
        self.job, self.grid, self.device, self.clip = job, grid, device, clip
        self.data = tokens_of(job)
        self.stages = build_stages(job, grid, device, dtype=dtype)
        self.ledger = Ledger(device)  # where the time of the latest step went
        self.schedule = None
        if job.layout.pp > 1:
            self.schedule = build_schedule(job, grid, self.stages, self._loss, device, self.ledger)
        self.optimizer = torch.optim.AdamW(self.parameters().values(), lr=learning_rate, fused=True)

    def parameters(self) -> dict[str, nn.Parameter]:
        """This rank's parameters by their names in the whole model."""
        return {
            name.replace("_checkpoint_wrapped_module.", "").replace("_orig_mod.", "").removeprefix("module."): parameter
            for stage in self.stages
            for name, parameter in stage.module.named_parameters()
        }

    def state(self) -> dict[str, Tensor]:
        """Weights and Adam's state by names that no layout changes: torch.distributed.checkpoint saves and loads it.

        The tensors are the trainer's own: loading into them resumes it, in this layout or another.
        """
        found: dict[str, Tensor] = {}
        for name, parameter in self.parameters().items():
            kept = self.optimizer.state[parameter]
            if not kept:
                kept["step"] = torch.zeros((), dtype=torch.float32, device=self.device)
                kept["exp_avg"], kept["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
            found[name] = parameter.detach()
            found.update({f"adam.{name}.{key}": value.detach() for key, value in kept.items()})
        return found

    def step(self, number: int) -> Step:
        """One whole step on the tokens of step `number`."""
        self.ledger.clear()
        part = self.forward_backward(number)
        norm = self.update()
        with self.ledger.span("report"):
            return Step(loss=self.global_loss(part), gradient_norm=norm.item())

    def update(self) -> Tensor:
        """Clip, step the optimizer and clear the gradients; return their norm before clipping."""
        with self.ledger.span("optimizer"):
            norm = self.gradient_norm()
            torch.nn.utils.clip_grads_with_norm_(self.parameters().values(), self.clip, norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return norm

    def forward_backward(self, number: int) -> Tensor:
        """Leave the gradients of step `number` in the parameters; return this rank's part of the loss, or 0."""
        with self.ledger.span("data"):
            tokens, targets = self._batch(number)
        cut_vocabulary = loss_parallel() if self.job.layout.tp > 1 else contextlib.nullcontext()
        with self.ledger.span("passes"), cut_vocabulary:
            losses = self._run(tokens, targets)
            total = torch.zeros((), dtype=torch.float64, device=self.device)
            for loss in losses:
                total += whole(loss.detach()).double()
            return total

    def _batch(self, number: int) -> tuple[Tensor, Tensor]:
        """This rank's tokens and targets of a step, on its device."""
        per_rank = self.job.micro_batch * self.job.micro_batches
        first = self.grid.dp_index * per_rank
        pair = self.data.rows(step=number, rows=range(first, first + per_rank))
        if self.grid.context is not None:
            mine = self.grid.context.positions(self.job.sequence)
            pair = pair[0][:, mine], pair[1][:, mine]
        return pair[0].to(self.device), pair[1].to(self.device)

    def _run(self, tokens: Tensor, targets: Tensor) -> list[Tensor]:
        if self.schedule is not None:
            losses: list[Tensor] = []
            last = any(s.last for s in self.stages)
            inputs = (tokens,) if any(s.first for s in self.stages) else ()
            keywords = {"target": targets, "losses": losses} if last else {}
            self.schedule.step(*inputs, return_outputs=False, **keywords)  # logits are never kept
            return losses
        losses = []
        model = self.stages[0].module
        for part, target, is_last in self._micro_batches(tokens, targets):
            with self._reduced_at_the_end(model, is_last):
                loss = self._loss(model(part), target)
                loss.backward()
            losses.append(loss)
        return losses

    def _micro_batches(self, tokens: Tensor, targets: Tensor) -> Iterator[tuple[Tensor, Tensor, bool]]:
        count = self.job.micro_batches
        for i, pair in enumerate(zip(tokens.chunk(count), targets.chunk(count), strict=True)):
            yield *pair, i == count - 1

    @staticmethod
    def _reduced_at_the_end(model: nn.Module, is_last: bool) -> contextlib.AbstractContextManager[None]:
        """DDP reduces once a step. FSDP2 reduces each micro-batch: whole gradients would not fit a large model."""
        waits = isinstance(model, nn.parallel.DistributedDataParallel) and not is_last
        return model.no_sync() if waits else contextlib.nullcontext()  # type: ignore[no-any-return]

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy in float32 or better, summed over tokens, per token of the whole step."""
        with self.ledger.span("loss"):
            wide = logits.float() if logits.dtype == torch.bfloat16 else logits
            total = cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="sum")
            return total / self.job.tokens

    def global_loss(self, part: Tensor) -> float:
        """The step's loss from every rank's part. Ranks of one tensor parallel group hold the same part."""
        if dist.get_world_size() > 1:
            part = part.clone()
            dist.all_reduce(part)
        return float(part.item()) / self.job.layout.tp

    def gradient_norm(self) -> Tensor:
        """The 2-norm of all gradients of the model, on every rank."""
        grads = [p.grad for p in self.parameters().values() if p.grad is not None]
        norm = whole(torch.nn.utils.get_total_norm(grads))
        if self.job.layout.pp > 1:
            square = norm.double() ** 2
            dist.all_reduce(square, group=self.grid.group("pp"))
            norm = square.sqrt().to(norm.dtype)
        return norm

    def gradients(self) -> dict[str, Tensor]:
        """Whole gradients of this rank's stages by name, zero where there is none. Every rank calls it."""
        return {
            name: whole(p.grad) if p.grad is not None else torch.zeros(p.shape, dtype=p.dtype, device=p.device)
            for name, p in self.parameters().items()
        }


def whole(tensor: Tensor) -> Tensor:
    """A DTensor's full value; a plain tensor as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
