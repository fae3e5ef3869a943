"""GPT-J as Hugging Face stores it."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.families import decoder, heads
from anyformer.checkpoint.family import Family, at, register, size

BRANCH = "stack.block.0.branch"
ATTENTION, FEED = f"{BRANCH}.branches.0", f"{BRANCH}.branches.1"
NAMES = "n_embd n_layer n_head vocab_size"
FIELDS = (
    *decoder.sizes(NAMES, 4096, 28, 16, 50400, attention=ATTENTION),
    size("rotary_dim", 64, "rotary_dim", f"{ATTENTION}.rotary.dims"),
    decoder.act("activation_function", "gelu_new", f"{FEED}.act"),
    at("n_inner", None, f"{FEED}.hidden"),
    at("layer_norm_epsilon", 1e-5, "stack.final_norm.eps", "stack.block.0.norm.eps"),
    at("embd_pdrop", 0.0, "embed.dropout"),
    at("resid_pdrop", 0.0, f"{BRANCH}.dropout"),
    at("attn_pdrop", 0.0, f"{ATTENTION}.dropout"),
    decoder.INIT,
)
ENDS = {"wte": "embed.token", "ln_f": "stack.norm"}
LAYER = "attn.q_proj attn.k_proj attn.v_proj attn.out_proj mlp.fc_in mlp.fc_out"
SLOTS = tuple(f"0.branch.branches.0.{name}" for name in ("q", "k", "v", "out"))
SLOTS += ("0.branch.branches.1.up", "0.branch.branches.1.down", "0.norm")
BODY = decoder.body(ENDS, decoder.plain("h.{}", f"{LAYER} ln_1", SLOTS))
TASKS = decoder.tasks("GPTJ", S.Vocabulary(tied=False, bias=True)) | decoder.readers("GPTJ", None)
TASKS |= {"question-answering": heads.span("GPTJForQuestionAnswering")}
register(Family(
    "gptj", "gpt-j", "transformer", FIELDS, BODY, TASKS,
    ignore=(".attn.bias", ".attn.masked_bias"), joint=(decoder.TIES,),
))  # fmt: skip
