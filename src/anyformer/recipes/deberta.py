"""DeBERTa: encoders whose attention keeps words and distances apart."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.recipes.bert import bert
from anyformer.recipes.registry import Options, register

NORM = S.LayerNorm(eps=1e-7)
ATTENTION = "stack.block.0.branch"
EXACT = 128  # distances that have a bucket each, and as many buckets for those beyond


def masked(length: int) -> S.Vocabulary:
    """Masked tokens, by a last layer that positions ask."""
    return S.Vocabulary(bias=True, dense=True, wide=True, norm=NORM, enhanced=length)


@register(dim=768, depth=12, heads=12, vocab=50265, length=512, dropout=0.1)
def deberta(o: Options) -> S.Model:
    """DeBERTa: words and distances attend apart, positions come last (arXiv:2006.03654)."""
    apart = S.Disentangled(bias=False, dropout=o.dropout)
    head = masked(o.length)
    spec = bert(o)
    changes = {"embed.position": None, "embed.types": 0, "head": head, "embed.norm": NORM}
    changes |= {"stack.block.*.norm": NORM, "stack.distances": S.Distances(reach=o.length)}
    changes |= {f"{ATTENTION}.disentangled": apart, f"{ATTENTION}.k_bias": False}
    for path, value in changes.items():
        spec = S.override(spec, path, value)
    return spec


@register(dim=1536, depth=24, heads=24, vocab=128100, length=512, dropout=0.1)
def deberta_v2(o: Options) -> S.Model:
    """DeBERTa-v2: buckets of distances that share the words' maps, a convolution (2006.03654)."""
    spec = deberta_v3(o)
    beside = S.Convolution(act="gelu", norm=NORM, dropout=o.dropout)
    return S.override(S.override(spec, "stack.convolution", beside), "head", masked(o.length))


@register(dim=768, depth=12, heads=12, vocab=128100, length=512, dropout=0.1)
def deberta_v3(o: Options) -> S.Model:
    """DeBERTa-v3: v2 without convolution that tells replaced tokens (arXiv:2111.09543)."""
    spec = deberta(o)
    buckets = 2 * EXACT if o.length > EXACT + 1 else None
    spec = S.override(
        spec, "stack.distances", S.Distances(reach=o.length, buckets=buckets, norm=NORM)
    )
    apart = S.Disentangled(shared=True, dropout=o.dropout)
    spec = S.override(
        S.override(spec, f"{ATTENTION}.disentangled", apart), f"{ATTENTION}.k_bias", None
    )
    return S.override(spec, "head", S.Detect())
