"""Each switch equals a release of x-transformers that implements it rightly, weights carried over.

docs/x_transformers.md says where a release is not right; test_naive.py has what none implements.
"""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyformer import build, override
from anyformer.compat import x_transformers as ours
from anyformer.compat.words import NAMES
from tests.parity.carry import disturb
from tests.parity.oracles import x_transformers
from tests.parity.switches import CASES, LENGTH, NEW, OLD, Case

TOLERANCE = 2e-5
DIM, HEADS, VOCAB, BATCH = 48, 4, 50, 2
SIZES = {"dim": DIM, "depth": 2, "heads": HEADS}
# logits of an encoder, and the last norm of a post-norm stack, which the wrapper's replaces
UNREAD = r"encoder\.to_logits\..*|attn_layers\.layers\.3\.0\.(weight|bias)"
PAIRS = [(case, layers) for case in CASES for layers in case.layers]


def _label(value: Any) -> str:
    return f"{value.switch}: {value.version}" if isinstance(value, Case) else str(value)


def _wrapped(package: Any, layers: str, words: dict[str, Any], outer: dict[str, Any]) -> nn.Module:
    stack = getattr(package, layers)(**SIZES, **words)
    sizes = {"num_tokens": VOCAB, "max_seq_len": 3 * LENGTH}
    return package.TransformerWrapper(**sizes, attn_layers=stack, **outer)


def _theirs(case: Case, layers: str) -> nn.Module:
    words = case.words if case.theirs is None else case.theirs
    outer = case.outer if case.outer_theirs is None else case.outer_theirs
    words = {"attn_dim_head": case.head_dim, **words}
    net = _wrapped(x_transformers(case.version), layers, words, outer)
    disturb(net)
    for name, value in net.named_parameters():
        if name.endswith("rmsnorm.gamma"):  # ours has one gain for all heads
            value.data[:] = value.data[:1].clone()
        if name == "pos_emb.scale":  # ours is fixed
            value.data[:] = DIM**-0.5
    return net.eval()


def _ours(case: Case, layers: str, net: nn.Module) -> nn.Module:
    made = _wrapped(ours, layers, {"attn_dim_head": case.head_dim, **case.words}, case.outer)
    for path, value in case.edits.items():
        made.spec = override(made.spec, path, value)
        made.model = build(made.spec)
    _carry(net, made, case.version)
    return made.eval()


def _carry(net: nn.Module, made: nn.Module, version: str) -> None:
    """Their weights into ours, and back: what ours writes is what theirs had."""
    theirs = net.state_dict()
    ours.load_state_dict(made, theirs, version)
    back = ours.state_dict(made, version)
    assert set(back) == set(theirs)
    changed = [key for key in back if not _close(back[key], theirs[key])]
    assert all(re.fullmatch(UNREAD, key) for key in changed), changed


def _close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def _assert_equal(theirs: Tensor, mine: Tensor, what: str) -> None:
    worst = float((theirs - mine).detach().abs().max())
    assert worst < TOLERANCE, f"{what} differ by {worst:.1e}"


def _assert_equal_gradients(answers: list[Tensor], tables: list[Tensor]) -> None:
    pairs = zip(answers, tables, strict=True)
    theirs, mine = (torch.autograd.grad(x.sin().sum(), table)[0] for x, table in pairs)
    largest = theirs.abs().max()
    assert largest > 0
    _assert_equal(theirs / largest, mine / largest, "gradients of the token tables")


def _token_table(net: nn.Module) -> Tensor:
    names = ("token_emb.weight", "token_emb.emb.weight", "model.embed.token.weight")
    return next(p for name, p in net.named_parameters() if name in names)


def _mask() -> Tensor:
    return torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH - 7]])


@pytest.mark.parametrize(("case", "layers"), PAIRS, ids=_label)
def test_switch(case: Case, layers: str):
    net = _theirs(case, layers)
    mine = _ours(case, layers, net)
    if case.segments > 1:
        _assert_equal_segments(case, net, mine)
        return
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH))
    for mask in (None, _mask()):
        real = torch.ones(BATCH, LENGTH).bool() if mask is None else mask
        answers = [model(ids, mask=mask)[real] for model in (net, mine)]
        _assert_equal(*answers, "logits")
        _assert_equal_gradients(answers, [_token_table(model) for model in (net, mine)])


def _assert_equal_segments(case: Case, net: nn.Module, mine: nn.Module) -> None:
    ids = torch.randint(0, VOCAB, (BATCH, case.segments * 8))
    theirs_memory = our_memory = None
    for segment in ids.split(8, 1):
        theirs, theirs_memory = net(segment, mems=theirs_memory, return_mems=True)
        found, our_memory = mine(segment, mems=our_memory, return_mems=True)
        _assert_equal(theirs, found, "logits of a segment")


def test_every_switch_is_listed():
    """Each keyword of the table is compared here, or by name elsewhere."""
    elsewhere = {
        "causal": "Encoder and Decoder",
        "cross_attend": "test_encoder_decoder",
        "cross_residual_attn": "test_encoder_decoder",
        "tie_token_emb": "test_encoder_decoder",
        "cross_attn_dim_context": "test_context_of_another_width",
        "attn_qk_norm": "attn_qk_rmsnorm, another name",
        "reversible": "test_naive",
        "relative_key": "test_naive",
        "relative_key_query": "test_naive",
        "tupe": "test_naive",
        "tupe_cls": "test_naive",
    }
    compared = {word for case in CASES for word in (*case.words, *case.outer)}
    assert not set(NAMES) - compared - set(elsewhere)
    assert not compared & set(elsewhere)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(
    "words", [{}, {"dec_cross_residual_attn": True}, {"dec_attn_num_mem_kv": 2}]
)
def test_encoder_decoder(words: dict[str, Any], tied: bool):
    version = "0.25.9"  # 0.12 lets a mask into the carried scores
    sizes = {f"{p}_{n}": v for p in ("enc", "dec") for n, v in SIZES.items() if n != "dim"}
    sizes |= {f"{p}_{n}": v for p in ("enc", "dec") for n, v in _tokens().items()}
    sizes |= {"enc_attn_dim_head": 16, "dec_attn_dim_head": 16, "tie_token_emb": tied}
    net = x_transformers(version).XTransformer(dim=DIM, **sizes, **words)
    disturb(net)
    mine = ours.XTransformer(dim=DIM, **sizes, **words)
    _carry(net, mine, version)
    src, tgt = torch.randint(0, VOCAB, (2, BATCH, LENGTH))
    for mask in (None, _mask()):
        losses = [m.eval()(src, tgt, src_mask=mask) for m in (net, mine)]
        _assert_equal(*losses, "losses")
        _assert_equal_gradients(losses, [net.encoder.token_emb.emb.weight, _source_table(mine)])


def _tokens() -> dict[str, int]:
    return {"num_tokens": VOCAB, "max_seq_len": LENGTH}


def _source_table(model: nn.Module) -> Tensor:
    own = model.model.encoder.embed.token
    return model.model.embed.token.weight if own is None else own.weight


@pytest.mark.parametrize("layers", ["Encoder", "Decoder", "CrossAttender"])
def test_bare_layers(layers: str):
    words = {**SIZES, "attn_dim_head": 16, "attn_num_mem_kv": 2}
    net = getattr(x_transformers(OLD), layers)(**words)
    disturb(net)
    mine = getattr(ours, layers)(**words)
    _carry(net, mine, OLD)
    x, context = torch.randn(BATCH, LENGTH, DIM), torch.randn(BATCH, 9, DIM)
    named: dict[str, Any] = {"mask": _mask()}
    if layers == "CrossAttender":
        named |= {"context": context, "context_mask": torch.arange(9) < torch.tensor([[9], [4]])}
    _assert_equal(net.eval()(x, **named)[_mask()], mine.eval()(x, **named)[_mask()], "outputs")


def test_context_of_another_width():
    words = {**SIZES, "attn_dim_head": 16, "cross_attn_dim_context": 30}
    net = x_transformers(NEW).CrossAttender(**words)
    disturb(net)
    mine = ours.CrossAttender(**words)
    model = build(override(mine.spec, "stack.final_norm", mine.spec.stack.block[0].norm))
    mine.model = model
    _carry(net, mine, NEW)
    x, context = torch.randn(BATCH, LENGTH, DIM), torch.randn(BATCH, 9, 30)
    _assert_equal(net.eval()(x, context=context), mine.eval()(x, context=context), "outputs")


@pytest.mark.parametrize("classes", [None, 7])
def test_images(classes: int | None):
    sizes = {"image_size": 24, "patch_size": 8, "num_classes": classes}
    words = {**SIZES, "attn_dim_head": 16}
    package = x_transformers(OLD)
    net = package.ViTransformerWrapper(**sizes, attn_layers=package.Encoder(**words))
    disturb(net)
    mine = ours.ViTransformerWrapper(**sizes, attn_layers=ours.Encoder(**words))
    _carry(net, mine, OLD)
    image = torch.randn(BATCH, 3, 24, 24)
    _assert_equal(net.eval()(image), mine.eval()(image), "answers")
    embedded = [m(image, return_embeddings=True) for m in (net, mine)]
    _assert_equal(*embedded, "embeddings")


@pytest.mark.parametrize("sizes", [{"dim_in": 10, "dim_out": 6}, {}])
def test_continuous_values(sizes: dict[str, int]):
    words = {**SIZES, "attn_dim_head": 16}
    package = x_transformers(OLD)
    wrapped = [
        p.ContinuousTransformerWrapper(max_seq_len=LENGTH, attn_layers=p.Decoder(**words), **sizes)
        for p in (package, ours)
    ]
    disturb(wrapped[0])
    _carry(*wrapped, OLD)
    x = torch.randn(BATCH, LENGTH, sizes.get("dim_in", DIM))
    answers = [w.eval()(x.clone(), mask=_mask())[_mask()] for w in wrapped]
    _assert_equal(*answers, "answers")
