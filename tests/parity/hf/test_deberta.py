"""DeBERTa, v1 and v2, against transformers; the mask decoder against a naive one of its own."""

from __future__ import annotations

import json
import math
import random

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import anyformer
from anyformer.checkpoint.family import FAMILIES
from anyformer.recipes import recipe
from tests.parity.hf.compare import SEEDS, close, same_files, same_gradients, shake
from tests.parity.hf.encoders import CLASSES, LABELS, inputs

NAMES = {"deberta": "Deberta", "deberta-v2": "DebertaV2"}
OWN = "enhanced-masked-lm"  # a task that transformers doesn't have
CASES = [(f, t) for f in NAMES for t in FAMILIES[f].tasks if t != OWN]
PER_POSITION = ("last_hidden_state", "logits", "start_logits", "end_logits")


def config(family, seed):
    """Random fields: odd sizes, flags on both sides."""
    rng = random.Random(f"{family}{seed}")
    pick = lambda *options: rng.choice(options)
    heads, relative = pick(1, 2, 3), pick(True, True, True, False)
    fields = {
        "vocab_size": 61,
        "hidden_size": heads * pick(4, 6),
        "num_hidden_layers": pick(1, 2, 3),
        "num_attention_heads": heads,
        "intermediate_size": pick(13, 24),
        "hidden_act": pick("gelu", "relu", "gelu_new"),
        "hidden_dropout_prob": pick(0.0, 0.2),
        "attention_probs_dropout_prob": pick(0.0, 0.2),
        "max_position_embeddings": pick(12, 30),
        "type_vocab_size": pick(0, 0, 2),
        "layer_norm_eps": pick(1e-7, 1e-3),
        "pad_token_id": 0,
        "relative_attention": relative,
        "max_relative_positions": pick(-1, -1, 6, 40),
        "position_biased_input": pick(True, False),
        "pos_att_type": pick("c2p|p2c", ["p2c", "c2p"], ["c2p"], "p2c"),
        "pooler_dropout": pick(0.0, 0.2),
        "pooler_hidden_act": pick("gelu", "tanh"),
    }
    narrow = pick(None, None, 5)
    fields |= {} if narrow is None else {"embedding_size": narrow}
    fields |= {"legacy": True if narrow is not None else pick(True, False)}
    fields |= {} if relative else {"pos_att_type": pick(None, ["c2p"], "p2c|c2p")}
    if family == "deberta":
        return fields | ({} if relative else {"talking_head": pick(True, False)})
    fields |= {"share_att_key": pick(True, False), "position_buckets": pick(-1, 4, 8)}
    fields |= {"norm_rel_ebd": pick("none", "layer_norm")} if relative else {}
    kernel = pick(0, 0, 3, 5)
    groups = pick(1, heads)
    return fields | {
        "conv_kernel_size": kernel,
        "conv_act": pick("tanh", "gelu"),
        "conv_groups": groups,
    }


def made(family, task, fields, seed=0, **more):
    """A transformers model whose weights show every part."""
    torch.manual_seed(seed)
    count = LABELS if "classification" in task else 2
    settings = getattr(transformers, f"{NAMES[family]}Config")(**fields, num_labels=count, **more)
    return shake(getattr(transformers, NAMES[family] + CLASSES[task])(settings).eval(), seed)


def agree(a, b, given):
    """Equal answers at real positions."""
    mask = given["attention_mask"].bool()
    found = [name for name in PER_POSITION if b.get(name) is not None]
    assert found
    for name in found:
        each = a[name].shape[:2] == mask.shape
        close(*((o[name][mask] if each else o[name]) for o in (a, b)), name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("family", "task"), CASES)
def test_answers_losses_gradients_and_files(family, task, seed, tmp_path):
    fields = config(family, seed)
    hf = made(family, task, fields, seed)
    again = same_files(hf, tmp_path)
    model = anyformer.load(tmp_path / "theirs")
    given = inputs(task, fields, seed)
    a, b = model(**given), hf(**given)
    agree(a, b, given)
    if b.get("loss") is None:
        mask = given["attention_mask"].bool()
        for out in (a, b):
            (out.last_hidden_state[mask] ** 3).sum().backward()
    else:
        close(a.loss, b.loss, "loss")
        a.loss.backward(), b.loss.backward()
    same_gradients(hf, model, family, task)
    with torch.no_grad():
        for p in again.parameters():
            p.data = p.data.clone()  # aligned in memory as hf's are: sums round alike
        found, wanted = again(**given), hf(**given)
    assert all(torch.equal(found[n], wanted[n]) for n in PER_POSITION if wanted.get(n) is not None)


@pytest.mark.parametrize("family", NAMES)
@pytest.mark.parametrize("backend", ["halved", "chunked"])
def test_other_backends_say_the_same(family, backend, tmp_path):
    fields = config(family, 0) | {"relative_attention": True, "pos_att_type": "c2p|p2c"}
    hf = made(family, "base", fields)
    hf.save_pretrained(tmp_path)
    model = anyformer.load(tmp_path)
    for module in model.modules():
        if isinstance(getattr(module, "spec", None), anyformer.spec.Attention):
            module.spec = anyformer.spec.override(module.spec, "backend", backend)
    given = inputs("base", fields, 0)
    with torch.no_grad():
        agree(model(**given), hf(**given), given)


def test_long_rows_reach_the_logarithmic_buckets(tmp_path):
    fields = config("deberta-v2", 0) | {"relative_attention": True, "pos_att_type": "c2p|p2c"}
    fields |= {"position_buckets": 8, "max_relative_positions": 24, "type_vocab_size": 0}
    fields |= {"max_position_embeddings": 64, "position_biased_input": True}
    hf = made("deberta-v2", "base", fields)
    hf.save_pretrained(tmp_path)
    ids = torch.randint(5, 61, (2, 60))
    with torch.no_grad():
        close(anyformer.load(tmp_path)(ids)[0], hf(ids)[0], "60 positions, 24 apart at most")


def test_heads_talk_where_scores_are_of_words_alone(tmp_path):
    fields = config("deberta", 0) | {"relative_attention": False, "talking_head": True}
    hf = made("deberta", "base", fields | {"num_attention_heads": 2, "hidden_size": 8})
    hf.save_pretrained(tmp_path)
    model, given = anyformer.load(tmp_path), inputs("base", fields, 0)
    assert model.spec.stack.block[0].branch.talking == "both"
    with torch.no_grad():
        agree(model(**given), hf(**given), given)


REFUSED = {
    "pos_att_type": {"pos_att_type": ["p2p"]},
    "relative_attention needs": {"relative_attention": True, "pos_att_type": []},
    "talking_head": {"relative_attention": True, "pos_att_type": ["c2p"], "talking_head": True},
    "norm_rel_ebd": {"relative_attention": False, "norm_rel_ebd": "layer_norm"},
    "odd kernel": {"conv_kernel_size": 2},
    "even number of buckets": {
        "relative_attention": True,
        "pos_att_type": ["c2p"],
        "position_buckets": 7,
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_part_is_refused(message):
    kind = "deberta" if message == "talking_head" else "deberta-v2"
    with pytest.raises(anyformer.errors.AnyformerError, match=message):
        FAMILIES[kind].spec_of(REFUSED[message], "base")


# ------------------------------------------------------------------- the published files

RELATIVE = {"relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False}
BUCKETS = RELATIVE | {"position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
PUBLISHED = {  # the fields of config.json that are not the defaults
    "deberta": RELATIVE,
    "deberta-v2": BUCKETS | {"conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 64},
    "deberta-v3": BUCKETS | BASE | {"intermediate_size": 3072},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_recipes_are_the_published_models(name):
    family = "deberta" if name == "deberta" else "deberta-v2"
    spec = recipe(name, head=None)
    assert FAMILIES[family].spec_of(PUBLISHED[name], "base") == spec
    kind = getattr(transformers, f"{NAMES[family]}Model")
    with torch.device("meta"):
        hf = kind(kind.config_class(**PUBLISHED[name]))
    assert anyformer.count(spec).parameters == hf.num_parameters()


def published(family, folder, seed=0, **more):
    """A folder as the authors publish it: their own head, a position table, no architectures."""
    fields = config(family, seed) | {"legacy": False, "position_biased_input": False}
    fields |= {"relative_attention": True, "pos_att_type": "c2p|p2c"} | more
    for key in ("embedding_size", "talking_head"):
        fields.pop(key, None)
    hf = made(family, "masked-lm", fields)
    hf.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    place = torch.randn(fields["max_position_embeddings"], fields["hidden_size"])
    tensors["deberta.embeddings.position_embeddings.weight"] = place
    width = fields["hidden_size"]
    for name in ("dense", "LayerNorm"):
        tensors[f"mask_predictions.{name}.bias"] = torch.zeros(width)
    save_file(tensors, folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text())
    del said["architectures"], said["legacy"]
    (folder / "config.json").write_text(json.dumps(said))
    return hf, place, fields


@pytest.mark.parametrize("family", NAMES)
def test_published_files_have_the_head_that_they_hold(family, tmp_path):
    hf, _, fields = published(family, tmp_path)
    given = inputs("base", fields, 0)
    with torch.no_grad():
        agree(anyformer.load(tmp_path, task="masked-lm")(**given), hf(**given), given)
        agree(anyformer.load(tmp_path)(**given), hf.deberta(**given), given)


def naive(hf, place, ids, mask, second):
    """The mask decoder in plain sums: the last layer twice, asked by states with positions."""
    with torch.no_grad():
        states = hf.deberta(ids, attention_mask=mask, output_hidden_states=True).hidden_states[-2]
        encoder = hf.deberta.encoder
        table, asked = encoder.get_rel_embedding(), states + place[: ids.shape[1]]
        for _ in range(2):
            asked = naive_layer(encoder.layer[-1], hf.config, states, asked, mask, table, second)
        head = hf.lm_predictions.lm_head
        x = head.LayerNorm(head.transform_act_fn(head.dense(asked)))
        return x @ hf.deberta.embeddings.word_embeddings.weight.T + head.bias


def naive_layer(layer, config, states, asked, mask, table, second):
    """One layer whose queries are not its keys, a score at a time."""
    own, heads = layer.attention.self, config.num_attention_heads
    size = config.hidden_size // heads
    split = lambda x: x.unflatten(-1, (heads, size)).transpose(-2, -3)
    if second:
        q, k, v = own.query_proj(asked), own.key_proj(states), own.value_proj(states)
        shared = own.share_att_key
        c2p, p2c = (
            (own.key_proj, own.query_proj) if shared else (own.pos_key_proj, own.pos_query_proj)
        )
    else:
        rows = own.in_proj.weight.view(heads, 3, size, -1)
        w = [rows[:, i].flatten(0, 1) for i in range(3)]
        q, k, v = asked @ w[0].T + own.q_bias, states @ w[1].T, states @ w[2].T + own.v_bias
        c2p, p2c = own.pos_proj, own.pos_q_proj
    q, k, v, far, near = (split(x) for x in (q, k, v, c2p(table), p2c(table)))
    reach = table.shape[0] // 2
    bucket = lambda n: n if not second or own.position_buckets < 1 else bucketed(n, own)
    out = torch.zeros_like(q)
    for b in range(q.shape[0]):
        real = [j for j in range(q.shape[2]) if mask[b, j]]
        for h in range(heads):
            for i in real:
                at = [min(max(bucket(i - j) + reach, 0), 2 * reach - 1) for j in real]
                s = [
                    q[b, h, i] @ k[b, h, j] + q[b, h, i] @ far[h, r] + k[b, h, j] @ near[h, r]
                    for j, r in zip(real, at, strict=True)
                ]
                out[b, h, i] = (torch.stack(s) / math.sqrt(3 * size)).softmax(0) @ v[b, h, real]
    y = layer.attention.output(out.transpose(1, 2).flatten(2), asked)
    return layer.output(layer.intermediate(y), y)


def bucketed(n, own):
    """The signed logarithmic bucket of a distance."""
    half = own.position_buckets // 2
    if abs(n) <= half:
        return n
    ratio = math.log(abs(n) / half) / math.log((own.max_relative_positions - 1) / half)
    return int(math.copysign(half + math.ceil(ratio * (half - 1)), n))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", NAMES)
def test_the_mask_decoder(family, seed, tmp_path):
    hf, place, fields = published(family, tmp_path, seed, num_hidden_layers=2)
    model = anyformer.load(tmp_path, task=OWN)
    given = inputs("base", fields, seed)
    given = {k: given[k] for k in ("input_ids", "attention_mask")}
    wanted = naive(hf, place, *given.values(), family == "deberta-v2")
    mask = given["attention_mask"].bool()
    with torch.no_grad():
        close(model(**given).logits[mask], wanted[mask], "logits")
        plain = anyformer.load(tmp_path, task="masked-lm")(**given)
    assert not torch.allclose(plain.logits[mask], wanted[mask], atol=1e-3)
    model.save_pretrained(tmp_path / "ours")
    kept = load_file(tmp_path / "ours" / "model.safetensors")
    assert torch.equal(kept["deberta.embeddings.position_embeddings.weight"], place)
    again = anyformer.load(tmp_path / "ours")
    assert again.spec == model.spec
    assert again.origin.task == OWN
    back = type(hf).from_pretrained(tmp_path / "ours").eval()  # the head, not its decoder
    with torch.no_grad():
        agree(back(**given), hf(**given), given)


def test_the_mask_decoder_says_where_its_positions_end(tmp_path):
    published("deberta", tmp_path, max_position_embeddings=12)
    model = anyformer.load(tmp_path, task=OWN)
    with pytest.raises(anyformer.errors.InputError, match="13 positions"):
        model(torch.ones(1, 13, dtype=torch.long))


def test_the_mask_decoder_learns(tmp_path):
    published("deberta-v2", tmp_path, num_hidden_layers=2)
    model = anyformer.load(tmp_path, task=OWN).train()
    ids = torch.randint(5, 61, (2, 9))
    F.cross_entropy(model(ids).logits.flatten(0, 1), ids.flatten()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
