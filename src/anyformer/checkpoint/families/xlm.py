"""XLM (arXiv:1901.07291) as Hugging Face stores it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.families.decoder import ATTENTION, FEED
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register, size
from anyformer.checkpoint.keymap import Row, linear
from anyformer.checkpoint.labels import answers, labels

ACTS = {True: "gelu", False: "relu"}
NAMES = "emb_dim n_layers n_heads vocab_size - max_position_embeddings"
FIELDS = (
    Field("n_words", None, (), "vocab"),  # the older word
    *decoder.sizes(NAMES, 2048, 12, 16, None, None, 512),
    size("causal", False, "causal", f"{ATTENTION}.causal"),
    Field("gelu_activation", True, (f"{FEED}.act",), None, ACTS.get, lambda act: act == "gelu"),
    at("layer_norm_eps", 1e-12, "embed.norm.eps", "stack.block.*.norm.eps"),
    at("dropout", 0.1, "embed.dropout", "stack.block.*.dropout"),
    at("attention_dropout", 0.1, f"{ATTENTION}.dropout"),
    at("init_std", 0.02, "init.std"),
)


def read_langs(spec: S.Model, config: Config) -> S.Model:
    """Vectors for languages, where there are several and they are used."""
    count = config.get("n_langs", 1) if config.get("use_lang_emb", True) else 1
    return S.override(spec, "embed.langs", count if count > 1 else 0)


def write_langs(spec: S.Model) -> Config:
    """The number of languages, where they have vectors."""
    langs = spec.embed.langs
    return {"n_langs": langs, "use_lang_emb": True} if langs else {"use_lang_emb": False}


PARTS = {"layer_norm1.{}": "0.norm", "layer_norm2.{}": "1.norm"}  # lists, one item a layer
PARTS |= {f"attentions.{{}}.{x}_lin": f"0.branch.{x}" for x in ("q", "k", "v", "out")}
PARTS |= {"ffns.{}.lin1": "1.branch.up", "ffns.{}.lin2": "1.branch.down"}


def inner(spec: S.Model) -> Iterator[Row]:
    """The layers."""
    for i in range(spec.stack.depth):
        for theirs, ours in PARTS.items():
            yield from linear(theirs.format(i), f"stack.blocks.{i}.{ours}")


def head(kind: str, _: S.Model, config: Config) -> S.Head:
    """Words, labels of the same positions where causal too; or a summary of the first token."""
    if kind == "Vocabulary":
        return S.Vocabulary(tied=config.get("tie_word_embeddings", True), bias=True, shift=False)
    last = {"summary_activation": None} if kind == "Classes" else {}
    act = heads.summary(config, summary_type="first", **last)
    drop, count = heads.rate("summary_first_dropout")(config), labels(config)
    if kind == "Classes":
        return S.make("Classes", count=count, pool_dropout=drop, answers=answers(config))
    return S.make("Choices", hidden=count, act=act, pool_dropout=drop)


def beams(spec: S.Model, config: Config) -> S.Head:
    """Answers found by beams of so many starts and ends."""
    sizes = {name: config.get(f"{name[:-1]}_n_top", 5) for name in ("starts", "ends")}
    return S.make("Beams", **sizes, norm=spec.embed.norm)


def tops(spec: S.Model) -> Config:
    """How many starts and ends, where there is a head to speak of."""
    head = spec.head
    both = isinstance(head, S.Beams)
    return {"start_n_top": head.starts, "end_n_top": head.ends} if both else {}


def task(architecture: str, kind: str, rows: dict[str, str], *tied: str) -> Task:
    """A head and the rows of its maps."""
    return Task(architecture, partial(head, kind), decoder.body(rows), tied)


ENDS = {"embeddings": "embed.token", "position_embeddings": "embed.position"}
ENDS |= {"lang_embeddings": "embed.language", "layer_norm_emb": "embed.norm"}
PROJ, SUMMARY = "pred_layer.proj", "sequence_summary.summary"
CHOICE = {SUMMARY: "head.hidden", "logits_proj": "head.out"}
SQUAD = {"start_logits.dense": "start", "end_logits.dense_0": "join", "end_logits.dense_1": "end"}
SQUAD |= {"end_logits.LayerNorm": "norm", "answer_class.dense_0": "judge"}
SQUAD = {
    f"qa_outputs.{k}": f"head.{v}" for k, v in (SQUAD | {"answer_class.dense_1": "answer"}).items()
}
EVERY = heads.per_token("XLMForTokenClassification", dropout=heads.rate("dropout"))
ONE = task("XLMForSequenceClassification", "Classes", {SUMMARY: "head.out"})
TASKS = {
    "base": Task("XLMModel", lambda *_: None),
    "masked-lm": task("XLMWithLMHeadModel", "Vocabulary", {PROJ: "head"}, f"{PROJ}.weight"),
    "sequence-classification": ONE,
    "token-classification": EVERY,
    "question-answering": heads.span("XLMForQuestionAnsweringSimple"),
    "beam-question-answering": Task("XLMForQuestionAnswering", beams, heads.maps(SQUAD)),
    "multiple-choice": task("XLMForMultipleChoice", "Choices", CHOICE),
}
register(Family(
    "xlm", "xlm", "transformer", FIELDS, decoder.body(ENDS, inner), TASKS, ignore=("position_ids",),
    only={"asm": False, "is_encoder": True},
    joint=(Joint(read_langs, write_langs), Joint(lambda spec, _: spec, tops), decoder.TIES),
))  # fmt: skip
