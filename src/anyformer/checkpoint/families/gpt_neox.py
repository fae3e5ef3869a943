"""GPT-NeoX and Pythia as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.families.rope import SHARE, rope
from anyformer.checkpoint.family import Config, Family, Field, Joint, at, register
from anyformer.checkpoint.keymap import Row, by_head, fused, layers
from anyformer.spec.walk import attentions

BRANCH = "stack.block.0.branch"
ATTENTION, FEED = f"{BRANCH}.branches.0", f"{BRANCH}.branches.1"
SHARED = lambda given: None if given is None else given.get(SHARE)
FIELDS = (
    *decoder.sizes(decoder.NAMES, 6144, 44, 64, 50432, 24576, attention=ATTENTION, feed=FEED),
    decoder.act("hidden_act", "gelu", f"{FEED}.act"),
    Field("rotary_pct", 0.25, (), "rotary"),
    *(Field(key, None, (), "rotary", SHARED) for key in ("rope_parameters", "rope_scaling")),
    at("attention_bias", True, f"{ATTENTION}.bias"),
    at("layer_norm_eps", 1e-5, "stack.final_norm.eps", f"{BRANCH}.norms.*.eps"),
    at("hidden_dropout", 0.0, f"{BRANCH}.dropout", "embed.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    decoder.INIT,
)
parallel = lambda spec: isinstance(spec.stack.block[0].branch, S.Parallel)


def in_turn(spec: S.Model, config: Config) -> S.Model:
    """With use_parallel_residual=False the branches run one after another."""
    branch = spec.stack.block[0].branch
    assert isinstance(branch, S.Parallel)
    if config.get("use_parallel_residual", True):
        return spec
    pairs = zip(branch.branches, branch.norms, strict=True)
    block = tuple(S.Sublayer(branch=b, norm=n, dropout=branch.dropout) for b, n in pairs)
    return S.override(spec, "stack.block", block)


def side_by_side(spec: S.Model) -> S.Model:
    """The same branches side by side, where the fields look for them."""
    block = spec.stack.block
    if parallel(spec):
        return spec
    branches = tuple(leaf for sub in block for leaf in sub.leaves)
    norms = tuple(sub.norm for sub in block if sub.norm is not None)
    branch = S.Parallel(branches=branches, norms=norms, dropout=block[0].dropout)
    return S.override(spec, "stack.block", (S.Sublayer(branch=branch, norm=None),))


def inner(spec: S.Model) -> Iterator[Row]:
    """The layers."""
    branch, norm = ("{}.branch", "{}.norm")
    if parallel(spec):
        branch, norm = ("0.branch.branches.{}", "0.branch.norms.{}")
    (read, feed), norms = ([name.format(i) for i in (0, 1)] for name in (branch, norm))
    names = "attention.dense mlp.dense_h_to_4h mlp.dense_4h_to_h input_layernorm"
    slots = (f"{read}.out", f"{feed}.up", f"{feed}.down", *norms)
    yield from layers(spec.stack.depth, "layers.{}", f"{names} post_attention_layernorm", slots)
    step = by_head(next(attentions(spec))[-1].heads)
    for i in range(spec.stack.depth):
        ours = [f"stack.blocks.{i}.{read}.{name}" for name in "qkv"]
        yield from fused(f"layers.{i}.attention.query_key_value", ours, step)


ENDS = {"embed_in": "embed.token", "final_layer_norm": "stack.norm"}
TASKS = decoder.tasks("GPTNeoX", S.Vocabulary(tied=False), table="embed_out")
TASKS |= decoder.readers("GPTNeoX", "classifier", dropout=heads.rate("classifier_dropout"))
TURNS = Joint(in_turn, lambda spec: {"use_parallel_residual": parallel(spec)}, side_by_side)
register(Family(
    "gpt_neox", "gpt-neox", "gpt_neox", FIELDS, decoder.body(ENDS, inner), TASKS,
    ignore=(".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"),
    joint=(rope(ATTENTION, 2048, "rotary_emb_base", shares=True), TURNS, decoder.TIES),
))  # fmt: skip
