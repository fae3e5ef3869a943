"""ModernBERT (arXiv:2412.13663) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anyformer import spec as S
from anyformer.checkpoint.families import activations, decoder, heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED, FULL, SLIDING
from anyformer.checkpoint.families.rope import two_ropes
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register
from anyformer.checkpoint.keymap import Row, fused, split
from anyformer.checkpoint.labels import answers, labels
from anyformer.recipes.modernbert import alternating
from anyformer.recipes.windows import windows_of

NORMS = ("stack.final_norm", "embed.norm", "stack.block.1.norm")
SEEN = lambda local: local // 2 + 1  # distances below it
LOCAL = lambda window: 128 if window is None else 2 * (window - 1)
FIELDS = (
    *decoder.sizes(decoder.NAMES, 768, 22, 12, 50368, 1152),
    Field("local_attention", 128, (f"{ATTENTION}.window",), "window", SEEN, LOCAL),
    decoder.act("hidden_activation", "gelu"),
    at("norm_eps", 1e-5, *(f"{path}.eps" for path in NORMS)),
    at("norm_bias", False, *(f"{path}.bias" for path in NORMS)),
    at("attention_bias", False, f"{ATTENTION}.bias"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout", "stack.block.0.dropout"),
    at("mlp_bias", False, f"{FEED}.bias"),
    at("mlp_dropout", 0.0, f"{FEED}.dropout"),
    at("embedding_dropout", 0.0, "embed.dropout"),
    decoder.INIT,
)


def alike(spec: S.Model) -> S.Model:
    """The model with layers that are all like those with a window, where the fields look."""
    window = next((w for w in windows_of(spec) if w is not None), None)
    changes = {"block.0.norm": spec.stack.final_norm, "block.0.branch.window": window}
    for path, value in (changes | {"others": (), "kinds": ()}).items():
        spec = S.override(spec, f"stack.{path}", value)
    return spec


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """A window by layer_types, or in all layers but the first of each period."""
    every, local = config.get("global_attn_every_n_layers", 3), config.get("local_attention", 128)
    found = decoder.windows(spec, config, SEEN(local), lambda i: i % every)
    return alternating(alike(spec), found)


def maps(spec: S.Model) -> Iterator[Row]:
    """The maps of layers that hold several of ours."""
    for i in range(spec.stack.depth):
        theirs, ours = f"layers.{i}", f"stack.blocks.{i}"
        qkv, feed = [f"{ours}.0.branch.{x}" for x in "qkv"], f"{ours}.1.branch"
        yield from fused(f"{theirs}.attn.Wqkv", qkv, split(*[spec.dim] * 3))
        halves = split(*[S.get(spec, f"{FEED}.hidden")] * 2)
        yield from fused(f"{theirs}.mlp.Wi", [f"{feed}.gate", f"{feed}.up"], halves)


def head(kind: str, spec: S.Model, config: Config) -> S.Head:
    """A head behind a dense layer, an activation and a norm, as config.json says."""
    first = {"act": activations.ours(config.get("classifier_activation", "gelu"))}
    first |= {"norm": spec.stack.final_norm}
    bias, pool = config.get("classifier_bias", False), config.get("classifier_pooling", "cls")
    if kind == "MaskedLM":
        ends = {"tied": config.get("tie_word_embeddings", True), "dense_bias": bias, **first}
        return S.make("Vocabulary", dense=True, bias=config.get("decoder_bias", True), **ends)
    pooled = {"pool": {"cls": "first"}.get(pool, pool)}
    if kind == "SequenceClassification":
        made = S.make("Classes", count=labels(config), answers=answers(config), **pooled)
    elif kind == "TokenClassification":
        made = S.Project(size=labels(config))
    else:
        answer = heads.span(f"ModernBertFor{kind}").head
        made = S.make("Choices", **pooled) if kind == "MultipleChoice" else answer(spec, config)
    made = S.override(made, "dropout", heads.rate("classifier_dropout", default=0.0)(config))
    return S.override(made, "transform", S.make("Transform", bias=bias, **first))


def task(kind: str, table: str, ours: str, first: str = "head.transform", *tied: str) -> Task:
    """A head whose last map is `table` there, behind a dense layer and a norm."""
    rows = decoder.body({"head.dense": f"{first}.dense", "head.norm": f"{first}.norm", table: ours})
    return Task(f"ModernBertFor{kind}", partial(head, kind), rows, tied)


KINDS = ("SequenceClassification", "TokenClassification", "QuestionAnswering", "MultipleChoice")
NAMES = ("sequence-classification", "token-classification", "question-answering", "multiple-choice")
TASKS = {"base": Task("ModernBertModel", lambda *_: None)}
TASKS |= {"masked-lm": task("MaskedLM", "decoder", "head", "head", "decoder.weight")}
TASKS |= {n: task(k, "classifier", "head.out") for n, k in zip(NAMES, KINDS, strict=True)}
ENDS = {"embeddings.tok_embeddings": "embed.token", "embeddings.norm": "embed.norm"}
LAYER = decoder.plain("layers.{}", "- - - attn.Wo attn_norm - mlp.Wo mlp_norm")
THETAS = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}
TYPES = Joint(read_windows, lambda spec: {"layer_types": decoder.layer_types(spec)}, alike)
register(Family(
    "modernbert", "modernbert", "model", FIELDS,
    decoder.body(ENDS | {"final_norm": "stack.norm"}, LAYER, maps), TASKS,
    only={"sparse_prediction": False}, joint=(TYPES, two_ropes(8192, THETAS, True), decoder.TIES),
))  # fmt: skip
