"""Drawn specs as hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from anyformer import spec as S
from anyformer.laws.specs import draw_model


@st.composite
def specs(draw: st.DrawFn, causal: bool | None = None, writes: bool = False) -> S.Model:
    """Specs that shrink towards plain ones."""
    return draw_model(lambda *options: draw(st.sampled_from(options)), causal, writes)
