"""Small random configurations and inputs of every encoder family; see test_encoders.

`config(family, seed)` gives the fields of a transformers config: odd sizes, flags on both sides.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

VOCAB, LENGTH, LABELS = 61, 11, 3
NAMES = {
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "roberta-prelayernorm": "RobertaPreLayerNorm",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "albert": "Albert",
}
CLASSES = {
    "base": "Model",
    "masked-lm": "ForMaskedLM",
    "next-sentence": "ForNextSentencePrediction",
    "replaced-tokens": "ForPreTraining",
    "sequence-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "multiple-choice": "ForMultipleChoice",
}


def config(family: str, seed: int) -> dict[str, Any]:
    """The fields of a seed."""
    rng = random.Random(f"{family}{seed}")
    pick = lambda *options: rng.choice(options)
    return DRAW.get(family, _bert)(pick)


def _bert(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    return {
        "vocab_size": VOCAB,
        "hidden_size": heads * pick(3, 6),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "intermediate_size": pick(13, 24),
        "hidden_act": pick("gelu", "relu", "gelu_new", "silu"),
        "max_position_embeddings": pick(17, 30),
        "type_vocab_size": pick(2, 3),
        "layer_norm_eps": pick(1e-12, 1e-3),
        "hidden_dropout_prob": pick(0.0, 0.2),
        "attention_probs_dropout_prob": pick(0.0, 0.2),
        "pad_token_id": 0,
        "classifier_dropout": pick(None, 0.3),
    }


def _roberta(pick: Any) -> dict[str, Any]:
    return _bert(pick) | {"pad_token_id": pick(0, 1, 4)}


def _electra(pick: Any) -> dict[str, Any]:
    fields = _bert(pick)
    width = pick(fields["hidden_size"], 5)
    return fields | {"embedding_size": width, "summary_activation": pick("gelu", "tanh")}


def _albert(pick: Any) -> dict[str, Any]:
    fields = _bert(pick)
    del fields["classifier_dropout"]
    layers = pick(2, 3, 4, 5)
    return fields | {
        "embedding_size": pick(fields["hidden_size"], 5),
        "num_hidden_layers": layers,
        "num_hidden_groups": pick(1, 2),
        "classifier_dropout_prob": pick(0.0, 0.3),
    }


def _distilbert(pick: Any) -> dict[str, Any]:
    heads = pick(1, 2, 3)
    return {
        "vocab_size": VOCAB,
        "dim": heads * pick(3, 6),
        "n_layers": pick(1, 2, 3),
        "n_heads": heads,
        "hidden_dim": pick(13, 24),
        "activation": pick("gelu", "relu"),
        "max_position_embeddings": pick(17, 30),
        "sinusoidal_pos_embds": pick(False, True),
        "dropout": pick(0.0, 0.2),
        "attention_dropout": pick(0.0, 0.2),
        "qa_dropout": pick(0.0, 0.2),
        "seq_classif_dropout": pick(0.0, 0.2),
        "pad_token_id": 0,
    }


DRAW = {
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "roberta-prelayernorm": _roberta,
    "electra": _electra,
    "albert": _albert,
    "distilbert": _distilbert,
}


def inputs(task: str, fields: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """A batch of three rows, padded on the right; labels as the task has them."""
    rng = torch.Generator().manual_seed(seed)
    draw = lambda low, high, *shape: torch.randint(low, high, shape, generator=rng)
    shape = (2, 3, LENGTH) if task == "multiple-choice" else (3, LENGTH)
    pad = fields["pad_token_id"]
    ids = draw(5, VOCAB, *shape)
    mask = torch.ones(shape, dtype=torch.long)
    if task != "question-answering":  # their loss of answers counts padding, ours doesn't
        mask[..., 1, 7:] = 0
        mask[..., 2, 10:] = 0
    given = {"input_ids": ids.masked_fill(mask == 0, pad), "attention_mask": mask}
    if fields.get("type_vocab_size"):
        given["token_type_ids"] = draw(0, fields["type_vocab_size"], *shape)
    return given | answers(task, draw, mask)


def answers(task: str, draw: Any, mask: Tensor) -> dict[str, Tensor]:
    """The labels of a task."""
    rows = mask.shape[0]
    if task in ("masked-lm", "token-classification", "replaced-tokens"):
        count = {"masked-lm": VOCAB, "replaced-tokens": 2}.get(task, LABELS)
        found = draw(0, count, *mask.shape)
        ignored = task != "replaced-tokens"
        return {"labels": found.masked_fill(mask == 0, -100) if ignored else found}
    if task == "question-answering":
        ends = draw(0, 7, rows)
        return {"start_positions": draw(0, 7, rows), "end_positions": ends}
    counts = {"sequence-classification": LABELS, "next-sentence": 2, "multiple-choice": 3}
    return {"labels": draw(0, counts[task], rows)} if task in counts else {}
