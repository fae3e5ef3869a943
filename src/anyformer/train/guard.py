"""The guard: says when a step went wrong, by its loss and the norm of its gradient."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

from anyformer.train.settings import Guard

FLOOR = 0.01  # of the mean: a deviation is taken to be at least so large


class Watch:
    """The last losses, and whether the next one belongs to them."""

    def __init__(self, guard: Guard | None, scaled: bool = False):
        self.guard = guard
        self.scaled = scaled  # a scaler answers gradients that overflow
        self.losses: deque[float] = deque(maxlen=guard.window if guard else 1)

    def fault(self, loss: float, norm: float) -> str | None:
        """What is wrong with a step, or None; a step that is right is remembered."""
        if self.guard is None:
            return None
        if not math.isfinite(loss):
            return f"the loss is {loss}"
        if not math.isfinite(norm) and not self.scaled:
            return f"the norm of the gradient is {norm}"
        if self.guard.sigma is not None and len(self.losses) == self.guard.window:
            mean = math.fsum(self.losses) / len(self.losses)
            variance = math.fsum((x - mean) ** 2 for x in self.losses) / len(self.losses)
            spread = max(math.sqrt(variance), FLOOR * abs(mean))
            if loss > mean + self.guard.sigma * spread:
                return f"the loss is {loss:.4g}, {(loss - mean) / spread:.1f} deviations too high"
        self.losses.append(loss)
        return None

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"losses": list(self.losses)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.losses.clear()
        self.losses.extend(state["losses"])
