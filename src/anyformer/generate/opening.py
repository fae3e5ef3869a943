"""Short prompts read by CUDA graphs: launching their kernels one by one takes longer than running.

Letters: B batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anyformer.generate.prompt import Prompt
from anyformer.generate.room import FEWEST
from anyformer.model.model import Model
from anyformer.ops.capture import capture
from anyformer.parts.twin import heard

TOKENS = 8192  # of all rows, up to which the host is slower than a GPU
MOST = 16  # graphs that are kept, each with the memory of its pass

Read = Callable[[Prompt], tuple[Tensor, int]]  # logits (B, V), and positions that were read
Key = tuple[str, torch.Size, torch.dtype]


class Opening(NamedTuple):
    """A pass over prompts of one shape."""

    graph: Any
    ids: Tensor  # that it reads
    logits: Tensor  # that it leaves
    length: int  # positions that were read then


class Openings:
    """The graphs of a model's prompts by shape, each captured when its shape comes again.

    They belong to the buffers that a pass fills: whoever changes those clears `graphs`.
    """

    def __init__(self, model: Model):
        self.model = model
        self.graphs: dict[Key, Opening | None] = {}  # None: can't be captured
        self.seen: set[Key] = set()

    def read(
        self, prompt: Prompt, read: Read, check: Callable[[Prompt], None]
    ) -> tuple[Tensor, int]:
        """Read a prompt, by its graph where there is one -> what `read` says of it.

        `check` asks beforehand what a graph can't ask, and needn't once its buffers are there.
        """
        if not self._serves(prompt):
            check(prompt)
            return read(prompt)
        key = prompt.name, prompt.ids.shape, prompt.ids.dtype
        opening = self.graphs.get(key)
        if opening is not None:
            opening.ids.copy_(prompt.ids)
            opening.graph.replay()
            return opening.logits.clone(), opening.length
        check(prompt)
        found, known = read(prompt), key in self.seen
        self.seen.add(key)
        if known and key not in self.graphs and len(self.graphs) < MOST:
            self.graphs[key] = _captured(prompt, read)
        return found

    def _serves(self, prompt: Prompt) -> bool:
        """Whether a prompt is short, of ids alone, and nobody listens to the model."""
        rows, length = prompt.ids.shape
        short = length <= FEWEST and rows * length <= TOKENS
        plain = not prompt.given and prompt.prefill is None
        return short and plain and not any(heard(m) for m in self.model.modules())


def _captured(prompt: Prompt, read: Read) -> Opening | None:
    """The pass over a prompt as a graph; the buffers that it fills are there already.

    None where a part of the model waits for the device, which no graph can hold.
    """
    ids = prompt.ids.clone()
    same = Prompt(ids=ids, name=prompt.name)
    stream: Any = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        read(same)  # libraries make what they keep
    torch.cuda.current_stream().wait_stream(stream)
    try:
        graph, (logits, length) = capture(lambda: read(same), stream)
    except RuntimeError:
        return None
    graph.replay()  # what was captured has not run
    return Opening(graph, ids, logits, length)
