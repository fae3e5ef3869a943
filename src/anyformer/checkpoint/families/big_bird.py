"""BigBird and BigBird-Pegasus (arXiv:2007.14062) as Hugging Face stores them."""

from __future__ import annotations

from dataclasses import replace

from anyformer import spec as S
from anyformer.checkpoint.families import bart, bert, heads
from anyformer.checkpoint.family import Config, Family, Field, Joint, Task, at, register
from anyformer.checkpoint.keymap import Row, linear
from anyformer.errors import CheckpointError, known_or_raise

KINDS = ("block_sparse", "original_full")
DEFAULTS = {"vocab_size": 50358, "max_position_embeddings": 4096, "hidden_act": "gelu_new"}
NAMES = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output"}


def sparse(path: str) -> Joint:
    """The fields that say which blocks an attention sees."""

    def read(spec: S.Model, config: Config) -> S.Model:
        said = {key: value for key, value in config.items() if value is not None}
        kind = said.get("attention_type", KINDS[0])
        known_or_raise(kind, KINDS, "attention_type", CheckpointError)
        size, random = said.get("block_size", 64), said.get("num_random_blocks", 3)
        longest = S.get(spec, "embed.position.length")
        blocks = S.BlockSparse(size=size, random=random, longest=longest)
        return S.override(spec, f"{path}.blocks", blocks if kind == KINDS[0] else None)

    def write(spec: S.Model) -> Config:
        blocks = S.get(spec, f"{path}.blocks")
        if blocks is None:
            return {"attention_type": KINDS[1]}
        sizes = {"block_size": blocks.size, "num_random_blocks": blocks.random}
        return {"attention_type": KINDS[0], **sizes}

    return Joint(read, write)


def acting(task: Task) -> Task:
    """A task whose head has the layers' activation."""
    act = lambda spec: S.get(spec, f"{bert.FEED}.act")
    head = lambda spec, config: S.override(task.head(spec, config), "act", act(spec))
    return replace(task, head=head)


def renamed(item: Row) -> Row:
    """A row of BART's under BigBird-Pegasus's names."""

    def rename(key: str) -> str:
        for old, new in NAMES.items() if key.startswith("encoder.") else ():
            key = key.replace(f"self_attn.{old}", f"self_attn.{new}")
        return key.replace("coder.layer_norm.", "coder.layernorm_embedding.")

    return replace(item, theirs=tuple(map(rename, item.theirs)))


# masked-lm and classification leave out a pooler that their files hold and nothing reads
MASKED = replace(bert.MASKED, architecture="BigBirdForMaskedLM")
OWN = ("classifier.dense", "classifier.out_proj")
SCALED = ("rescale_embeddings", False, ("embed.scale",), "scaled", bool, lambda scale: scale != 1.0)
BIG_BIRD = register(
    Family(
        model_type="big_bird",
        recipe="big-bird",
        prefix="bert",
        fields=(
            *(replace(f, default=DEFAULTS.get(f.key, f.default)) for f in bert.FIELDS),
            Field(*SCALED),
            at("use_bias", True, f"{bert.ATTENTION}.bias"),
        ),
        body=bert.body,
        tasks={
            "base": heads.pooler("BigBirdModel", lambda _: linear("pooler", "head.dense")),
            "masked-lm": MASKED,
            "pretraining": heads.pretraining(
                "BigBirdForPreTraining", MASKED, ("bert.pooler", "cls.seq_relationship"), "next"
            ),
            "sequence-classification": acting(
                heads.classes("BigBirdForSequenceClassification", OWN, early=heads.CLASSIFIER)
            ),
            "token-classification": heads.per_token("BigBirdForTokenClassification"),
            "multiple-choice": heads.choices(
                "BigBirdForMultipleChoice", ("bert.pooler", "classifier"), dropout=heads.HIDDEN
            ),
        },
        ignore=("embeddings.position_ids",),
        only={"tie_word_embeddings": True, "is_decoder": False, "add_cross_attention": False},
        joint=(sparse(bert.ATTENTION),),
    )
)
BART = bart.family(
    "bigbird_pegasus", "BigBirdPegasus", leave=("activation_dropout",), vocab_size=96103,
    max_position_embeddings=4096, encoder_layers=16, decoder_layers=16, scale_embedding=True,
    activation_function="gelu_new", pad_token_id=0,
)  # fmt: skip
BIASES = bart.all_of((bart.OWN, bart.CROSS, bart.ENCODER), "bias")
PEGASUS = register(
    replace(
        BART,
        fields=(
            *BART.fields,
            at("activation_dropout", 0.0, f"{bart.FEED}.dropout"),  # of the decoder alone
            at("use_bias", False, *BIASES),
        ),
        body=lambda spec: map(renamed, bart.body(spec)),
        tasks={name: BART.tasks[name] for name in ("base", "seq2seq-lm")},
        joint=(sparse(bart.ENCODER),),
    )
)
