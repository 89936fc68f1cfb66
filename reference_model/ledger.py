"""Where a step's time goes on one rank: named spans, on the device's own clock.

On a GPU a span is a pair of events in the stream, read once the step is over; on a CPU it is two readings
of the monotonic clock. Spans are the step's parts ("data", "passes", "optimizer") and, within the passes,
each action of a pipeline. A ledger holds one step: `clear` starts the next.

>>> ledger = Ledger(torch.device("cpu"))
>>> with ledger.span("data"): pass
>>> list(ledger.seconds())
['data']
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage

Mark = Any  # a time in seconds, or an event of the stream


class Ledger:
    """The spans of one step."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._spans: list[tuple[str, Mark, Mark]] = []

    def clear(self) -> None:
        """Forget all spans."""
        self._spans.clear()

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Time the body under a name; the same name may come again."""
        begin = self._mark()
        yield
        self._spans.append((name, begin, self._mark()))

    def watch(self, stage: PipelineStage) -> None:
        """Time every action of a pipeline stage, as "F3": forward of stage 3. B, I and W are its backward's."""
        index = stage.stage_index
        stage.forward_one_chunk = self._timed(stage.forward_one_chunk, lambda _: f"F{index}")
        stage.backward_one_chunk = self._timed(
            stage.backward_one_chunk, lambda options: f"B{index}" if options.get("full_backward", True) else f"I{index}"
        )
        stage.backward_weight_one_chunk = self._timed(stage.backward_weight_one_chunk, lambda _: f"W{index}")
        stage.perform_reduce_grad = self._timed(stage.perform_reduce_grad, lambda _: f"reduce{index}")

    def seconds(self) -> dict[str, list[float]]:
        """Durations by name, in order. On a GPU it waits for the stream."""
        if self._on_gpu:
            torch.cuda.synchronize()
        found: dict[str, list[float]] = defaultdict(list)
        for name, begin, end in self._spans:
            found[name].append(begin.elapsed_time(end) / 1e3 if self._on_gpu else end - begin)
        return dict(found)

    def _mark(self) -> Mark:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _timed(self, method: Callable[..., Any], name: Callable[[dict[str, Any]], str]) -> Callable[..., Any]:
        @functools.wraps(method)
        def timed(*args: Any, **options: Any) -> Any:
            with self.span(name(options)):
                return method(*args, **options)

        return timed
