"""BigBird and BigBird-Pegasus (arXiv:2007.14062) as Hugging Face stores them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import bart, bert, heads
from anyformer.checkpoint.family import Config, Family, Joint, Task, at, register, with_defaults
from anyformer.checkpoint.keymap import Row
from anyformer.errors import CheckpointError, known_or_raise

KINDS = ("block_sparse", "original_full")
NAMES = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output"}


def sparse(path: str) -> Joint:
    """The fields that say which blocks an attention sees."""

    def read(spec: S.Model, config: Config) -> S.Model:
        said = {key: value for key, value in config.items() if value is not None}
        kind, size = said.get("attention_type", KINDS[0]), said.get("block_size", 64)
        known_or_raise(kind, KINDS, "attention_type", CheckpointError)
        longest, random = S.get(spec, "embed.position.length"), said.get("num_random_blocks", 3)
        blocks = S.BlockSparse(size=size, random=random, longest=longest)
        return S.override(spec, f"{path}.blocks", blocks if kind == KINDS[0] else None)

    def write(spec: S.Model) -> Config:
        blocks = S.get(spec, f"{path}.blocks")
        if blocks is None:
            return {"attention_type": KINDS[1]}
        sizes = {"block_size": blocks.size, "num_random_blocks": blocks.random}
        return {"attention_type": KINDS[0], **sizes}

    return Joint(read, write)


def renamed(item: Row) -> Row:
    """A row of BART's under BigBird-Pegasus's names."""

    def rename(key: str) -> str:
        for old, new in NAMES.items() if key.startswith("encoder.") else ():
            key = key.replace(f"self_attn.{old}", f"self_attn.{new}")
        return key.replace("coder.layer_norm.", "coder.layernorm_embedding.")

    return replace(item, theirs=tuple(map(rename, item.theirs)))


def body(spec: S.Model) -> Iterator[Row]:
    """BART's rows under BigBird-Pegasus's names."""
    yield from map(renamed, bart.body(spec))


def answer(spec: S.Model, config: Config) -> S.Head:
    """An answer behind a feed-forward block, outside of the question that a token ends."""
    inner = {"hidden": S.get(spec.stack.block[-1], "branch.hidden"), "norm": spec.embed.norm}
    inner |= {"act": heads.act_of(spec), "dropout": heads.HIDDEN(config)}
    return S.Span(transform=S.make("Transform", **inner), token=config.get("sep_token_id", 66))


QA, FIRST = "qa_classifier", "head.transform"
ANSWER = {f"{QA}.intermediate.dense": f"{FIRST}.dense", f"{QA}.output.dense": f"{FIRST}.down"}
ANSWER |= {f"{QA}.output.LayerNorm": f"{FIRST}.norm", f"{QA}.qa_outputs": "head.out"}
DEFAULTS = {"vocab_size": 50358, "max_position_embeddings": 4096, "hidden_act": "gelu_new"}
FIELDS = (*with_defaults(bert.FIELDS, **DEFAULTS), bart.scaled("rescale_embeddings"))
MASKED = replace(bert.MASKED, architecture="BigBirdForMaskedLM")
PAIR, POOLED = ("bert.pooler", "cls.seq_relationship"), ("bert.pooler", "classifier")
TASKS = {
    "base": heads.pooler("BigBirdModel", "pooler"),
    **heads.written(MASKED, "BigBirdForCausalLM"),
    "pretraining": heads.pretraining("BigBirdForPreTraining", MASKED, PAIR, "next"),
    "sequence-classification": heads.classes("BigBird", heads.OWN, None, early=heads.CLASSIFIER),
    "token-classification": heads.per_token("BigBirdForTokenClassification"),
    "question-answering": Task("BigBirdForQuestionAnswering", answer, heads.maps(ANSWER)),
    "multiple-choice": heads.choices("BigBird", POOLED, dropout=heads.HIDDEN),
}
register(Family(
    "big_bird", "big-bird", "bert", (*FIELDS, at("use_bias", True, f"{bert.ATTENTION}.bias")),
    bert.body, TASKS, ignore=bert.IGNORE, only={"add_cross_attention": False},
    joint=(sparse(bert.ATTENTION), *bert.JOINTS[1:]),
))  # fmt: skip
BART = bart.family(
    "bigbird_pegasus", "BigBirdPegasus", leave=("activation_dropout",), vocab_size=96103,
    max_position_embeddings=4096, encoder_layers=16, decoder_layers=16, scale_embedding=True,
    activation_function="gelu_new", pad_token_id=0,
)  # fmt: skip
OWN = (
    at("activation_dropout", 0.0, f"{bart.FEED}.dropout"),  # of the decoder alone
    at("use_bias", False, *bart.all_of((bart.OWN, bart.CROSS, bart.ENCODER), "bias")),
)
ALONE = replace(  # with a table of its own, whatever config.json says
    BART.tasks["causal-lm"], head=lambda *_: S.Vocabulary(tied=False, shift=False),
    rows=heads.maps({"lm_head": "head"}), part=replace(bart.DECODER, rows=body),
)  # fmt: skip
register(replace(
    BART, fields=(*BART.fields, *OWN), body=body, tasks=BART.tasks | {"causal-lm": ALONE},
    joint=(sparse(bart.ENCODER),),
))  # fmt: skip
