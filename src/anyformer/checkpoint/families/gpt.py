"""GPT and GPT-2 as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, TIES, act, tasks
from anyformer.checkpoint.family import Family, Field, at, register, size
from anyformer.checkpoint.keymap import TRANSPOSE, Row, linear, row, split
from anyformer.errors import CheckpointError, known_or_raise

FIELDS = (
    size("n_embd", 768, "dim"),
    size("n_layer", 12, "depth", "stack.depth"),
    size("n_head", 12, "heads", f"{ATTENTION}.heads"),
    at("embd_pdrop", 0.1, "embed.dropout"),
    at("resid_pdrop", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attn_pdrop", 0.1, f"{ATTENTION}.dropout"),
    at("initializer_range", 0.02, "init.std"),
)
ACTS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # GPT's own table
NAMES = {"gelu_tanh": "gelu", "relu": "relu", "silu": "silu"}


def gpt_act(name: str) -> str:
    """Our name of an activation in GPT's table, where gelu means the tanh form."""
    return ACTS[known_or_raise(name, ACTS, "afn in config.json", CheckpointError)]


def gpt_name(name: str) -> str:
    """Their name of one of our activations."""
    return NAMES[known_or_raise(name, NAMES, "activation for GPT", CheckpointError)]


def conv(theirs: str, ours: str) -> Iterator[Row]:
    """A linear map that is stored (in, out)."""
    yield row(f"{theirs}.weight", f"{ours}.weight", TRANSPOSE)
    yield row(f"{theirs}.bias", f"{ours}.bias")


def thirds(theirs: str, ours: str, dim: int) -> Iterator[Row]:
    """q, k and v in one matrix, stored (in, out)."""
    names = lambda part: [f"{ours}.{x}.{part}" for x in "qkv"]
    yield row(f"{theirs}.weight", names("weight"), TRANSPOSE, split(dim, dim, dim))
    yield row(f"{theirs}.bias", names("bias"), split(dim, dim, dim))


def layers(spec: S.Model) -> Iterator[Row]:
    """The layers, whose norms are named alike wherever they stand."""
    for i in range(spec.stack.depth):
        theirs, ours = f"h.{i}", f"stack.blocks.{i}"
        yield from linear(f"{theirs}.ln_1", f"{ours}.0.norm")
        yield from thirds(f"{theirs}.attn.c_attn", f"{ours}.0.branch", spec.dim)
        yield from conv(f"{theirs}.attn.c_proj", f"{ours}.0.branch.out")
        yield from linear(f"{theirs}.ln_2", f"{ours}.1.norm")
        yield from conv(f"{theirs}.mlp.c_fc", f"{ours}.1.branch.up")
        yield from conv(f"{theirs}.mlp.c_proj", f"{ours}.1.branch.down")


def gpt_body(spec: S.Model) -> Iterator[Row]:
    """Embeddings and post-norm layers."""
    yield row("tokens_embed.weight", "embed.token.weight")
    yield row("positions_embed.weight", "embed.position.weight")
    yield from layers(spec)


def gpt2_body(spec: S.Model) -> Iterator[Row]:
    """Embeddings, pre-norm layers and the final norm."""
    yield row("wte.weight", "embed.token.weight")
    yield row("wpe.weight", "embed.position.weight")
    yield from layers(spec)
    yield from linear("ln_f", "stack.norm")


TIED = S.Vocabulary(tied=True)
GPT = register(
    Family(
        model_type="openai-gpt",
        recipe="gpt",
        prefix="transformer",
        fields=(
            *FIELDS,
            size("vocab_size", 40478, "vocab", "embed.source.vocab"),
            size("n_positions", 512, "length", "embed.position.length"),
            Field("afn", "gelu", (f"{FEED}.act",), None, gpt_act, gpt_name),
            at("layer_norm_epsilon", 1e-5, "stack.block.0.norm.eps", "stack.block.1.norm.eps"),
        ),
        body=gpt_body,
        tasks=tasks("OpenAIGPTModel", "OpenAIGPTLMHeadModel", TIED),
        ignore=(".attn.bias",),
        only={"tie_word_embeddings": True},
    )
)
GPT2 = register(
    Family(
        model_type="gpt2",
        recipe="gpt2",
        prefix="transformer",
        fields=(
            *FIELDS,
            size("vocab_size", 50257, "vocab", "embed.source.vocab"),
            size("n_positions", 1024, "length", "embed.position.length"),
            act("activation_function", "gelu_new"),
            at("n_inner", None, f"{FEED}.hidden"),
            at("layer_norm_epsilon", 1e-5, "stack.final_norm.eps", "stack.block.*.norm.eps"),
        ),
        body=gpt2_body,
        tasks=tasks("GPT2Model", "GPT2LMHeadModel", TIED),
        ignore=(".attn.bias", ".attn.masked_bias"),
        only={
            "add_cross_attention": False,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
        },
        joint=(TIES,),
    )
)
