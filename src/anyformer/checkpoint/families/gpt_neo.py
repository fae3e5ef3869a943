"""GPT-Neo as Hugging Face stores it."""

from __future__ import annotations

from anyformer import spec as S
from anyformer.checkpoint.families import decoder
from anyformer.checkpoint.families.decoder import ATTENTION, FEED
from anyformer.checkpoint.family import Config, Family, Joint, at, register
from anyformer.errors import CheckpointError
from anyformer.recipes.windows import windowed, windows_of

NAMES = "hidden_size num_layers num_heads vocab_size - max_position_embeddings"
FIELDS = (
    *decoder.sizes(NAMES, 2048, 24, 16, 50257, None, 2048),
    decoder.act("activation_function", "gelu_new"),
    at("intermediate_size", None, f"{FEED}.hidden"),
    at("layer_norm_epsilon", 1e-5, *decoder.EPS),
    at("embed_dropout", 0.0, "embed.dropout"),
    at("resid_dropout", 0.0, "stack.block.0.dropout", "stack.block.1.dropout"),
    at("attention_dropout", 0.0, f"{ATTENTION}.dropout"),
    decoder.INIT,
)


def read_windows(spec: S.Model, config: Config) -> S.Model:
    """attention_types: names of layers, and how often they come."""
    types, depth = config.get("attention_types") or [[["global", "local"], 12]], spec.stack.depth
    kinds = [kind for names, times in types for _ in range(times) for kind in names]
    if len(kinds) != depth or set(kinds) - {"global", "local"}:
        found = f"attention_types {types} give {len(kinds)} layers of {sorted(set(kinds))}"
        raise CheckpointError(f"config.json: {found}, not {depth} of 'global' and 'local'")
    window = config.get("window_size", 256)
    return windowed(spec, [window if kind == "local" else None for kind in kinds])


def write_windows(spec: S.Model) -> Config:
    """attention_types, the same spelt out, and the window of the local ones."""
    kinds = ["global" if window is None else "local" for window in windows_of(spec)]
    said, size = {"attention_types": [[kinds, 1]], "attention_layers": kinds}, decoder.widest(spec)
    return said if size is None else said | {"window_size": size}


ENDS = {"wte": "embed.token", "wpe": "embed.position", "ln_f": "stack.norm"}
LAYER = "attn.attention.q_proj attn.attention.k_proj attn.attention.v_proj attn.attention.out_proj"
BODY = decoder.body(ENDS, decoder.plain("h.{}", f"{LAYER} ln_1 mlp.c_fc mlp.c_proj ln_2"))
TASKS = decoder.tasks("GPTNeo", S.Vocabulary(tied=True)) | decoder.readers("GPTNeo", "classifier")
IGNORE = (".attn.attention.bias", ".attn.attention.masked_bias")
JOINTS = (Joint(read_windows, write_windows), decoder.TIES)
register(
    Family("gpt_neo", "gpt-neo", "transformer", FIELDS, BODY, TASKS, ignore=IGNORE, joint=JOINTS)
)
