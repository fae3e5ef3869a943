"""GPT-NeoX and Pythia as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import TIES, act, tasks
from anyformer.checkpoint.families.llama import plain_rope
from anyformer.checkpoint.family import Config, Family, Field, Joint, at, register, size
from anyformer.checkpoint.keymap import Row, by_head, linear, row
from anyformer.spec.walk import attentions, head_dim

BRANCH = "stack.block.0.branch"
ATTENTION, FEED = f"{BRANCH}.branches.0", f"{BRANCH}.branches.1"
THETA = f"{ATTENTION}.rotary.theta"


def of_rope(key: str) -> Any:
    """A reader of one entry of rope_parameters."""
    return lambda given: None if given is None else plain_rope(given).get(key)


FIELDS = (
    size("hidden_size", 6144, "dim"),
    size("num_hidden_layers", 44, "depth", "stack.depth"),
    size("num_attention_heads", 64, "heads", f"{ATTENTION}.heads"),
    size("intermediate_size", 24576, "hidden", f"{FEED}.hidden"),
    size("vocab_size", 50432, "vocab", "embed.source.vocab"),
    act("hidden_act", "gelu", f"{FEED}.act"),
    Field("rotary_pct", 0.25, (), "rotary"),
    Field("rope_parameters", None, (), "rotary", of_rope("partial_rotary_factor")),
    at("rotary_emb_base", 10000.0, THETA),
    Field("rope_parameters", None, (THETA,), None, of_rope("rope_theta")),
    at("attention_bias", True, f"{ATTENTION}.bias"),
    at("layer_norm_eps", 1e-5, "stack.final_norm.eps", f"{BRANCH}.norms.*.eps"),
    at("hidden_dropout", 0.0, f"{BRANCH}.dropout", "embed.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


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
    if isinstance(block[0].branch, S.Parallel):
        return spec
    branches = tuple(leaf for sub in block for leaf in sub.leaves)
    norms = tuple(sub.norm for sub in block if sub.norm is not None)
    branch = S.Parallel(branches=branches, norms=norms, dropout=block[0].dropout)
    return S.override(spec, "stack.block", (S.Sublayer(branch=branch, norm=None),))


def write_turns(spec: S.Model) -> Config:
    """How the branches run, and rotary positions in old and new words."""
    _, _, _, _, attention = next(attentions(spec))
    rotary = attention.rotary or S.Rotary()
    width = head_dim(attention, spec.dim)
    share = (rotary.dims or width) / width
    rope = {"rope_type": "default", "rope_theta": rotary.theta, "partial_rotary_factor": share}
    parallel = isinstance(spec.stack.block[0].branch, S.Parallel)
    return {"use_parallel_residual": parallel, "rotary_pct": share, "rope_parameters": rope}


def body(spec: S.Model) -> Iterator[Row]:
    """Tokens, layers and the final norm."""
    yield row("embed_in.weight", "embed.token.weight")
    _, _, _, _, attention = next(attentions(spec))
    fused, bias = by_head(attention.heads), attention.bias
    parallel = isinstance(spec.stack.block[0].branch, S.Parallel)
    for i in range(spec.stack.depth):
        theirs, ours = f"layers.{i}", f"stack.blocks.{i}"
        branch = "0.branch.branches.{}" if parallel else "{}.branch"
        norm = "0.branch.norms.{}" if parallel else "{}.norm"
        (read, feed), norms = ([f"{ours}.{at.format(j)}" for j in (0, 1)] for at in (branch, norm))
        for kind in ("weight", "bias") if bias else ("weight",):
            names = [f"{read}.{name}.{kind}" for name in "qkv"]
            yield row(f"{theirs}.attention.query_key_value.{kind}", names, fused)
        yield from linear(f"{theirs}.attention.dense", f"{read}.out", bias)
        yield from linear(f"{theirs}.mlp.dense_h_to_4h", f"{feed}.up")
        yield from linear(f"{theirs}.mlp.dense_4h_to_h", f"{feed}.down")
        yield from linear(f"{theirs}.input_layernorm", norms[0])
        yield from linear(f"{theirs}.post_attention_layernorm", norms[1])
    yield from linear("final_layer_norm", "stack.norm")


UNTIED = S.Vocabulary(tied=False)
GPT_NEOX = register(
    Family(
        model_type="gpt_neox",
        recipe="gpt-neox",
        prefix="gpt_neox",
        fields=FIELDS,
        body=body,
        tasks=tasks("GPTNeoXModel", "GPTNeoXForCausalLM", UNTIED, "embed_out"),
        ignore=(".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"),
        only={"rope_scaling": None},
        joint=(Joint(in_turn, write_turns, side_by_side), TIES),
    )
)
