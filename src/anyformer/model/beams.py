"""Answers found by beams: likely starts, likely ends behind each, and whether there is an answer.

Letters: B batch, N positions, d width, s starts, e ends behind each.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.heads import last
from anyformer.model.inputs import Inputs
from anyformer.parts import build, part


@part(S.Beams)
class Beams(nn.Module):
    """Logits of starts, of ends behind a start, and of there being no answer (arXiv:1906.08237)."""

    def __init__(self, spec: S.Beams, model: S.Model):
        super().__init__()
        self.spec, dim = spec, model.dim
        self.start = nn.Linear(dim, 1)
        self.join, self.end = nn.Linear(2 * dim, dim), nn.Linear(dim, 1)
        self.norm = build(spec.norm, dim)
        self.judge, self.answer = nn.Linear(2 * dim, dim), nn.Linear(dim, 1, bias=False)

    def forward(self, x: Tensor, keep: Tensor | None, given: Inputs) -> dict[str, Tensor]:
        """x (B, N, d) and its real positions -> logits behind the given starts, else beams."""
        shut = None if keep is None else ~keep
        if given.p_mask is not None:
            shut = given.p_mask.bool() if shut is None else shut | given.p_mask.bool()
        starts, rows = self.start(x).squeeze(-1), torch.arange(x.shape[0], device=x.device)
        starts = _without(starts, shut)  # (B, N)
        told = last(x, keep) if given.cls_index is None else x[rows, given.cls_index]
        if given.start_positions is None:
            return self._beams(x, starts, shut, told)
        begun = x[rows, given.start_positions]  # (B, d)
        ends = self._ends(x, begun[:, None], shut)[:, 0]
        found = {"start_logits": starts, "end_logits": ends}
        return found | {"cls_logits": self._judged(begun, told)}

    def _beams(
        self, x: Tensor, starts: Tensor, shut: Tensor | None, told: Tensor
    ) -> dict[str, Tensor]:
        """The likeliest starts (B, s) and ends (B, e·s), and one logit a row (B,)."""
        likely = starts.softmax(-1)
        best, at = likely.topk(self.spec.starts)
        begun = x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))  # (B, s, d)
        ends, to = self._ends(x, begun, shut).softmax(-1).topk(self.spec.ends)  # (B, s, e)
        mean = (x * likely[..., None]).sum(1)
        return {
            "start_top_log_probs": best,
            "start_top_index": at,
            "end_top_log_probs": ends.mT.flatten(1),
            "end_top_index": to.mT.flatten(1),
            "cls_logits": self._judged(mean, told),
        }

    def _ends(self, x: Tensor, begun: Tensor, shut: Tensor | None) -> Tensor:
        """Logits of ends (B, s, N) behind starts with states (B, s, d)."""
        own, other = self.join.weight.chunk(2, 1)
        joined = F.linear(x, own)[:, None] + F.linear(begun, other, self.join.bias)[:, :, None]
        found = self.end(self.norm(joined.tanh())).squeeze(-1)
        return _without(found, None if shut is None else shut[:, None])

    def _judged(self, begun: Tensor, told: Tensor) -> Tensor:
        """A logit (B,) of there being no answer, from two states (B, d)."""
        return self.answer(self.judge(torch.cat([begun, told], -1)).tanh()).squeeze(-1)


def _without(logits: Tensor, shut: Tensor | None) -> Tensor:
    """Logits with none where no answer may be."""
    return logits if shut is None else logits.masked_fill(shut, torch.finfo(logits.dtype).min)
