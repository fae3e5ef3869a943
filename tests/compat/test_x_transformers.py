"""The facades: shared weights, call conventions, losses, generation, errors."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

from anyformer import build
from anyformer.compat.x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
    top_p,
)
from anyformer.errors import InputError, SpecError
from anyformer.spec import LayerNorm

SMALL = {"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8}
SIZES = {"num_tokens": 30, "max_seq_len": 12}


def language(layers=Decoder, words=None, **outer):
    return TransformerWrapper(**SIZES, attn_layers=layers(**SMALL, **words or {}), **outer)


def written(**options):
    return AutoregressiveWrapper(language()).generate(ids(), 2, **options)


def ids(batch=2, length=8):
    return torch.randint(0, 30, (batch, length))


def test_a_wrapper_uses_the_weights_of_its_layers():
    layers = Encoder(**SMALL)
    before = copy.deepcopy(layers.state_dict())
    model = TransformerWrapper(**SIZES, attn_layers=layers)
    assert all(torch.equal(before[key], value) for key, value in layers.state_dict().items())
    own = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in layers.parameters()} < own


def test_bare_layers_have_no_final_norm_and_the_wrapper_has():
    layers = Encoder(**SMALL)
    model = TransformerWrapper(**SIZES, attn_layers=layers)
    assert layers.spec.stack.final_norm is None
    assert layers.model.stack.norm is None
    assert model.spec.stack.final_norm == LayerNorm()
    assert language(words={"pre_norm": False}).spec.stack.final_norm is None


@pytest.mark.parametrize("words", [{}, {"alibi_pos_bias": True}, {"pre_norm": False}])
def test_a_wrapper_is_the_model_of_its_spec(words):
    model = language(words=words).eval()
    twin = build(model.spec).eval()
    twin.load_state_dict(model.model.state_dict())
    x = ids()
    assert torch.equal(twin(x).logits, model(x))


@pytest.mark.parametrize("remake", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_stand_alone(remake):
    model = language(tie_embedding=True).eval()
    twin, x = remake(model), ids()
    assert torch.equal(twin(x), model(x))
    torch.nn.init.zeros_(twin.model.embed.token.weight)
    assert not twin(x).any()
    assert model(x).any()


def test_embeddings_and_attention_weights():
    model, x = language().eval(), ids()
    assert model(x, return_embeddings=True).shape == (2, 8, 16)
    logits, weights = model(x, return_attn=True)
    assert torch.equal(logits, model(x))
    assert [w.shape for w in weights] == [(2, 2, 8, 8)] * 2
    with pytest.raises(InputError, match="not for both"):
        model(x, return_attn=True, return_mems=True)


def test_continuous_memories():
    layers = Decoder(**SMALL, rel_pos_bias=True)
    model = ContinuousTransformerWrapper(max_seq_len=12, attn_layers=layers, max_mem_len=12).eval()
    x = torch.randn(2, 8, 16)
    first, memory = model(x[:, :4], return_mems=True)
    second = model(x[:, 4:], mems=memory)
    assert (torch.cat([first, second], 1) - model(x)).abs().max() < 1e-5


def test_the_loss_of_the_next_token():
    net = language().eval()
    model, x = AutoregressiveWrapper(net), ids(length=13)  # one more than the positions
    expected = F.cross_entropy(net(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    assert torch.allclose(model(x), expected)


def test_padding_is_not_predicted():
    model = AutoregressiveWrapper(language().eval())
    x = ids(1)
    longer = torch.cat([x, torch.zeros(1, 3, dtype=torch.long)], 1)
    mask = torch.arange(11)[None] < 8
    assert torch.allclose(model(longer, mask=mask), model(x), atol=1e-6)
    ignored = torch.cat([x, torch.full((1, 3), -100)], 1)
    assert torch.allclose(model(ignored), model(x), atol=1e-6)
    with pytest.raises(InputError, match="mask"):
        model(x, mask=mask)


def test_generation_gives_the_new_tokens():
    model = AutoregressiveWrapper(language())
    new = model.generate(ids(2, 3), 5, filter_thres=0.5)
    assert new.shape == (2, 5)
    assert model.training
    one = model.generate(ids(1, 3)[0], 5, temperature=0.0)
    assert one.shape == (5,)
    assert model.generate(ids(2, 3), 4, filter_logits_fn=top_p, temperature=0.7).shape == (2, 4)


def test_greedy_generation_takes_the_likeliest():
    model = AutoregressiveWrapper(language().eval())
    x = ids(1, 3)
    for _ in range(4):
        x = torch.cat([x, model.net(x)[:, -1].argmax(-1, keepdim=True)], 1)
    assert torch.equal(model.generate(x[:, :3], 4, temperature=0.0), x[:, 3:])


def test_translation_generates():
    sizes = {f"{s}_{n}": v for s in ("enc", "dec") for n, v in SIZES.items()}
    model = XTransformer(dim=16, enc_depth=1, dec_depth=1, enc_heads=2, dec_heads=2, **sizes)
    mask = torch.arange(8) < torch.tensor([[8], [5]])
    assert model.generate(ids(), ids(2, 1), 6, src_mask=mask).shape == (2, 6)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: AutoregressiveWrapper(language(Encoder)), SpecError, "Decoder"),
        (lambda: AutoregressiveWrapper(Decoder(**SMALL)), InputError, "TransformerWrapper"),
        (lambda: Encoder(**SMALL, num_memory_tokens=3), SpecError, "wrapper"),
        (lambda: language(ff_glu=True), SpecError, "attn_layers"),
        (lambda: Encoder(**SMALL, causal=True), SpecError, "Decoder is causal"),
        (lambda: Encoder(**SMALL, dept=3), SpecError, "did you mean 'depth'"),
        (lambda: language(max_mem_length=3), SpecError, "did you mean 'max_mem_len'"),
        (lambda: language(l2norm_embed=True), SpecError, "no part for"),
        (lambda: Encoder(**SMALL, attn_head_scale=True), SpecError, "no part for"),
        (lambda: TransformerWrapper(**SIZES, attn_layers=None), InputError, "attn_layers"),
        (lambda: language(Encoder, max_mem_len=4), SpecError, "causal"),
        (lambda: language(Encoder, {"rel_pos_bias": 1}), SpecError, "rel_pos_bias takes True or"),
        (lambda: CrossAttender(**SMALL, rel_pos_bias=True), SpecError, "nothing to change"),
        (lambda: XTransformer(dim=16, enc_depth=1), SpecError, "enc_num_tokens"),
        (lambda: ViTransformerWrapper(image_size=30, patch_size=8, attn_layers=Encoder(**SMALL)),
         SpecError, "whole number of patches"),
    ],
)  # fmt: skip
def test_mistakes_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: language()(ids(), masks=None), "did you mean 'mask'"),
        (lambda: language()(ids(), context=torch.zeros(2, 3, 16)), "context|cross"),
        (lambda: language()(ids(length=13)), "13 positions"),
        (lambda: written(beams=3), "beams"),
        (lambda: written(filter_logits_fn=len), "top_k"),
        (lambda: written(filter_thres=90), "filter_thres"),
    ],
)  # fmt: skip
def test_bad_calls_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
