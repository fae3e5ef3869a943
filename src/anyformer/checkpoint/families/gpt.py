"""GPT and GPT-2 as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, body, readers, sizes, tasks
from anyformer.checkpoint.family import Config, Family, Field, Task, at, register
from anyformer.checkpoint.keymap import TRANSPOSE, Row, fused, linear, split
from anyformer.errors import CheckpointError, known_or_raise

NAMES = "n_embd n_layer n_head vocab_size - n_positions"
FIELDS = (
    at("embd_pdrop", 0.1, "embed.dropout"),
    at("resid_pdrop", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attn_pdrop", 0.1, f"{ATTENTION}.dropout"),
    decoder.INIT,
)
ACTS = {"gelu": "gelu_tanh", "relu": "relu", "silu": "silu", "swish": "silu"}  # GPT's own table
THEIRS = {"gelu_tanh": "gelu", "relu": "relu", "silu": "silu"}
gpt_act = lambda name: ACTS[known_or_raise(name, ACTS, "afn in config.json", CheckpointError)]
gpt_name = lambda name: THEIRS[known_or_raise(name, THEIRS, "activation for GPT", CheckpointError)]


def conv(theirs: str, ours: str) -> Iterator[Row]:
    """A linear map that is stored (in, out)."""
    return fused(theirs, (ours,), TRANSPOSE)


def maps(spec: S.Model) -> Iterator[Row]:
    """The linear maps of layers, stored (in, out), with q, k and v in one."""
    for i in range(spec.stack.depth):
        theirs, ours, thirds = f"h.{i}", f"stack.blocks.{i}", split(*[spec.dim] * 3)
        parts = [f"{ours}.0.branch.{name}" for name in "qkv"]
        yield from fused(f"{theirs}.attn.c_attn", parts, TRANSPOSE, thirds)
        yield from conv(f"{theirs}.attn.c_proj", f"{ours}.0.branch.out")
        yield from conv(f"{theirs}.mlp.c_fc", f"{ours}.1.branch.up")
        yield from conv(f"{theirs}.mlp.c_proj", f"{ours}.1.branch.down")


def both(name: str, causal: str, table: str | None = None) -> dict[str, Task]:
    """The bare model, its words, and its words beside a choice among sequences.

    `table` is the key of the tokens, where the file of the last has them as its head alone.
    """
    found = tasks(name, S.Vocabulary(tied=True), causal)
    words, one = found["causal-lm"], heads.rate("summary_first_dropout")

    def head(spec: S.Model, config: Config) -> S.Head:
        tokens, plain = words.head(spec, config), {"summary_last_dropout": 0.0}
        act = heads.summary(config, summary_type="cls_index", **plain)
        return S.make("Double", tokens=tokens, act=act, dropout=one(config))

    def rows(spec: S.Model) -> Iterator[Row]:
        yield from () if table else heads.inside(words, spec)
        yield from linear("multiple_choice_head.summary", "head.out")

    alias = {table: words.tied[0]} if table else {}
    task = Task(f"{name}DoubleHeadsModel", head, rows, words.tied, alias=alias)
    return found | {"double-heads": task}


NORMS = decoder.plain("h.{}", "- - - - ln_1 - - ln_2")  # named alike wherever they stand
register(Family(
    "openai-gpt", "gpt", "transformer",
    (*sizes(NAMES, 768, 12, 12, 40478, None, 512), *FIELDS,
     Field("afn", "gelu", (f"{FEED}.act",), None, gpt_act, gpt_name),
     at("layer_norm_epsilon", 1e-5, "stack.block.0.norm.eps", "stack.block.1.norm.eps")),
    body({"tokens_embed": "embed.token", "positions_embed": "embed.position"}, maps, NORMS),
    both("OpenAIGPT", "OpenAIGPTLMHeadModel", "tokens_embed.weight")
    | readers("OpenAIGPT", None, None),
    ignore=(".attn.bias",), only={"tie_word_embeddings": True},
))  # fmt: skip
ONLY = {"add_cross_attention": False, "scale_attn_weights": True}
register(Family(
    "gpt2", "gpt2", "transformer",
    (*sizes(NAMES, 768, 12, 12, 50257, None, 1024), *FIELDS, at("n_inner", None, f"{FEED}.hidden"),
     decoder.act("activation_function", "gelu_new"), at("layer_norm_epsilon", 1e-5, *decoder.EPS)),
    body({"wte": "embed.token", "wpe": "embed.position", "ln_f": "stack.norm"}, maps, NORMS),
    both("GPT2", "GPT2LMHeadModel") | readers("GPT2", "classifier"),
    ignore=(".attn.bias", ".attn.masked_bias"), joint=(decoder.TIES,),
    only=ONLY | {"scale_attn_by_inverse_layer_idx": False},
))  # fmt: skip
