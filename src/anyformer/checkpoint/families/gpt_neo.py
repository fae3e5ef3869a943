"""GPT-Neo as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, TIES, act, tasks
from anyformer.checkpoint.family import Config, Family, Joint, at, register, size
from anyformer.checkpoint.keymap import Row, linear, row
from anyformer.errors import CheckpointError
from anyformer.recipes.windows import windowed, windows_of

FIELDS = (
    size("hidden_size", 2048, "dim"),
    size("num_layers", 24, "depth", "stack.depth"),
    size("num_heads", 16, "heads", f"{ATTENTION}.heads"),
    size("vocab_size", 50257, "vocab", "embed.source.vocab"),
    size("max_position_embeddings", 2048, "length", "embed.position.length"),
    act("activation_function", "gelu_new"),
    at("intermediate_size", None, f"{FEED}.hidden"),
    at("layer_norm_epsilon", 1e-5, "stack.final_norm.eps", "stack.block.*.norm.eps"),
    at("embed_dropout", 0.0, "embed.dropout"),
    at("resid_dropout", 0.0, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """attention_types: names of layers, and how often they come."""
    types = config.get("attention_types") or [[["global", "local"], 12]]
    kinds = [kind for names, times in types for _ in range(times) for kind in names]
    if len(kinds) != spec.stack.depth or set(kinds) - {"global", "local"}:
        raise CheckpointError(
            f"config.json: attention_types {types} give {len(kinds)} layers of {sorted(set(kinds))}"
            f", not {spec.stack.depth} of 'global' and 'local'"
        )
    window = config.get("window_size", 256)
    return windowed(spec, [window if kind == "local" else None for kind in kinds])


def write_windows(spec: S.Model) -> Config:
    """attention_types, the same spelt out, and the window of the local ones."""
    windows = windows_of(spec)
    kinds = ["global" if w is None else "local" for w in windows]
    size = max((w for w in windows if w is not None), default=None)
    said = {"attention_types": [[kinds, 1]], "attention_layers": kinds}
    return said if size is None else said | {"window_size": size}


def body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, pre-norm layers and the final norm."""
    yield row("wte.weight", "embed.token.weight")
    yield row("wpe.weight", "embed.position.weight")
    for i in range(spec.stack.depth):
        theirs, ours = f"h.{i}", f"stack.blocks.{i}"
        for name in "qkv":
            key = f"{theirs}.attn.attention.{name}_proj"
            yield from linear(key, f"{ours}.0.branch.{name}", bias=False)
        yield from linear(f"{theirs}.attn.attention.out_proj", f"{ours}.0.branch.out")
        yield from linear(f"{theirs}.mlp.c_fc", f"{ours}.1.branch.up")
        yield from linear(f"{theirs}.mlp.c_proj", f"{ours}.1.branch.down")
        for j in range(2):
            yield from linear(f"{theirs}.ln_{j + 1}", f"{ours}.{j}.norm")
    yield from linear("ln_f", "stack.norm")


GPT_NEO = register(
    Family(
        model_type="gpt_neo",
        recipe="gpt-neo",
        prefix="transformer",
        fields=FIELDS,
        body=body,
        tasks=tasks("GPTNeoModel", "GPTNeoForCausalLM", S.Vocabulary(tied=True)),
        ignore=(".attn.attention.bias", ".attn.attention.masked_bias"),
        joint=(Joint(read_windows, write_windows), TIES),
    )
)
