"""CTRL as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, TIES, tasks
from anyformer.checkpoint.family import Family, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row

FIELDS = (
    size("n_embd", 1280, "dim"),
    size("n_layer", 48, "depth", "stack.depth"),
    size("n_head", 16, "heads", f"{ATTENTION}.heads"),
    size("dff", 8192, "hidden", f"{FEED}.hidden"),
    size("vocab_size", 246534, "vocab", "embed.source.vocab"),
    at("layer_norm_epsilon", 1e-6, "stack.final_norm.eps"),  # that of the layers is fixed
    at("embd_pdrop", 0.1, "embed.dropout"),
    at("resid_pdrop", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


def body(spec: S.Model) -> Iterator[Row]:
    """Tokens, pre-norm layers and the final norm."""
    yield row("w.weight", "embed.token.weight")
    for i in range(spec.stack.depth):
        theirs, ours = f"h.{i}", f"stack.blocks.{i}"
        for name in "qkv":
            yield from linear(f"{theirs}.multi_head_attention.W{name}", f"{ours}.0.branch.{name}")
        yield from linear(f"{theirs}.multi_head_attention.dense", f"{ours}.0.branch.out")
        yield from linear(f"{theirs}.ffn.0", f"{ours}.1.branch.up")
        yield from linear(f"{theirs}.ffn.2", f"{ours}.1.branch.down")
        for j in range(2):
            yield from linear(f"{theirs}.layernorm{j + 1}", f"{ours}.{j}.norm")
    yield from linear("layernorm", "stack.norm")


CTRL = register(
    Family(
        model_type="ctrl",
        recipe="ctrl",
        prefix="transformer",
        fields=FIELDS,
        body=body,
        tasks=tasks("CTRLModel", "CTRLLMHeadModel", S.Vocabulary(tied=True, bias=True)),
        joint=(TIES,),
    )
)
