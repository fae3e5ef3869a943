"""One file per lineage of published checkpoints; importing them makes their families known."""

from anyformer.checkpoint.families import (  # noqa: F401
    albert,
    bart,
    bert,
    ctrl,
    distilbert,
    electra,
    gemma,
    gpt,
    gpt_j,
    gpt_neo,
    gpt_neox,
    llama,
    opt,
    pair,
    roberta,
    t5,
    vision,
)
