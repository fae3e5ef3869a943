"""GPT-J as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import TIES, act, tasks
from anyformer.checkpoint.family import Family, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row

BRANCH = "stack.block.0.branch"
ATTENTION, FEED = f"{BRANCH}.branches.0", f"{BRANCH}.branches.1"
FIELDS = (
    size("n_embd", 4096, "dim"),
    size("n_layer", 28, "depth", "stack.depth"),
    size("n_head", 16, "heads", f"{ATTENTION}.heads"),
    size("rotary_dim", 64, "rotary_dim", f"{ATTENTION}.rotary.dims"),
    size("vocab_size", 50400, "vocab", "embed.source.vocab"),
    act("activation_function", "gelu_new", f"{FEED}.act"),
    at("n_inner", None, f"{FEED}.hidden"),
    at("layer_norm_epsilon", 1e-5, "stack.final_norm.eps", "stack.block.0.norm.eps"),
    at("embd_pdrop", 0.0, "embed.dropout"),
    at("resid_pdrop", 0.0, f"{BRANCH}.dropout"),
    at("attn_pdrop", 0.0, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


def body(spec: S.Model) -> Iterator[Row]:
    """Tokens, layers with one norm and the final norm."""
    yield row("wte.weight", "embed.token.weight")
    for i in range(spec.stack.depth):
        theirs, ours = f"h.{i}", f"stack.blocks.{i}.0"
        yield from linear(f"{theirs}.ln_1", f"{ours}.norm")
        for name in ("q", "k", "v", "out"):
            key = f"{theirs}.attn.{name}_proj"
            yield from linear(key, f"{ours}.branch.branches.0.{name}", bias=False)
        yield from linear(f"{theirs}.mlp.fc_in", f"{ours}.branch.branches.1.up")
        yield from linear(f"{theirs}.mlp.fc_out", f"{ours}.branch.branches.1.down")
    yield from linear("ln_f", "stack.norm")


GPT_J = register(
    Family(
        model_type="gptj",
        recipe="gpt-j",
        prefix="transformer",
        fields=FIELDS,
        body=body,
        tasks=tasks("GPTJModel", "GPTJForCausalLM", S.Vocabulary(tied=False, bias=True)),
        ignore=(".attn.bias", ".attn.masked_bias"),
        joint=(TIES,),
    )
)
