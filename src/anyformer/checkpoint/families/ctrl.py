"""CTRL as Hugging Face stores it."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.families.decoder import INIT, TIES, body, plain, readers, sizes, tasks
from anyformer.checkpoint.family import Family, at, register

FIELDS = (
    *sizes("n_embd n_layer n_head vocab_size dff", 1280, 48, 16, 246534, 8192),
    at("layer_norm_epsilon", 1e-6, "stack.final_norm.eps"),  # that of the layers is fixed
    at("embd_pdrop", 0.1, "embed.dropout"),
    at("resid_pdrop", 0.1, "stack.block.0.dropout", "stack.block.1.dropout"),
    INIT,
)
ENDS = {"w": "embed.token", "layernorm": "stack.norm"}
LAYER = " ".join(f"multi_head_attention.{name}" for name in ("Wq", "Wk", "Wv", "dense"))
BODY = body(ENDS, plain("h.{}", f"{LAYER} layernorm1 ffn.0 ffn.2 layernorm2"))
TASKS = tasks("CTRL", S.Vocabulary(tied=True, bias=True), "CTRLLMHeadModel")
TASKS |= readers("CTRL", None, None, score="classifier")
register(Family("ctrl", "ctrl", "transformer", FIELDS, BODY, TASKS, joint=(TIES,)))
