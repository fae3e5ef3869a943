"""Fresh weights: every parameter is drawn, and those with a paper's value have it."""

import math

import pytest
import torch

from anyformer import spec as S
from anyformer.model.model import build
from anyformer.parts import PARTS
from anyformer.recipes import recipe


def model_of(*branches, stack=None, embed=None, head=None, init=None, residual=None, dim=8):
    block = tuple(S.Sublayer(branch=b, residual=residual or S.Add()) for b in branches)
    return S.Model(
        dim=dim,
        embed=embed or S.Embed(source=S.Tokens(vocab=11)),
        stack=S.Stack(block=block, depth=2, **(stack or {})),
        head=head,
        init=init or S.Init(),
    )


RELATIVE = (S.Buckets(), S.ALiBi(learned=True), S.ALiBi(), S.Shaw(clip=3, key_side=True), S.XL())
RELATIVE += (S.XLTable(back=3, ahead=3),)
EVERYTHING = S.Attention(
    heads=2,
    memory=3,
    qk_norm=S.RMSNorm(),
    talking="both",
    mods=(S.SoftCap(), S.Temperature(init=2.0)),
    relative=RELATIVE,
    gate="glu",
    collaborate=0.5,
)
SPECS = {
    "tokens": model_of(
        EVERYTHING,
        S.FeedForward(gated=True),
        stack={"relative": RELATIVE, "untied": S.Untied(length=9)},
        embed=S.Embed(
            source=S.Tokens(vocab=11),
            dim=4,
            position=S.Learned(length=9, offset=2),
            types=2,
            norm=S.LayerNorm(),
            memory=3,
        ),
        head=S.Vocabulary(tied=False, bias=True, dense=True, norm=S.ScaleNorm()),
    ),
    "untied": model_of(S.Attention(heads=2), stack={"untied": S.Untied(length=9, cls=True)}),
    "one u and v": model_of(
        S.Attention(heads=2, relative=(S.XL(biases=False),)), stack={"relative": (S.XLBiases(),)}
    ),
    "rezero": model_of(S.FeedForward(), residual=S.ReZero(), head=S.Vocabulary(bias=True)),
    "scaled": model_of(S.FeedForward(), residual=S.Scaled(), head=S.Pooler()),
    "gated": model_of(S.FeedForward(), residual=S.Gated(), head=S.Project(size=3)),
    "image": model_of(
        EVERYTHING,
        embed=S.Embed(source=S.Patches(image=8, patch=4), dim=6),
        head=S.Classes(count=3, hidden=5),
    ),
    "relaxed": model_of(
        EVERYTHING,
        S.FeedForward(gated=True),
        stack={"schedule": S.Shared(unique=1), "lora": S.Lora(rank=2, bias=True)},
    ),
    **{
        f"loop {kind}": model_of(
            S.Attention(heads=2),
            S.FeedForward(),
            stack={
                "schedule": S.Shared(unique=1),
                "own": ("out", "down"),
                "loop": S.Loop(step="learned", inject=inject, halt=halt),
            },
            head=S.Vocabulary(),
        )
        for kind, inject, halt in (
            ("act", "concat", S.Act()),
            ("exit", "gated", S.Exit()),
            ("route", "stable", S.Route()),
        )
    },
    "parallel": model_of(S.Parallel(branches=(S.Attention(heads=2), S.FeedForward()))),
    "choices": model_of(S.FeedForward(), head=S.Choices(hidden=5)),
    "span": model_of(S.FeedForward(), head=S.Span()),
    "detect": model_of(S.FeedForward(), head=S.Detect()),
    "values": model_of(S.FeedForward(), embed=S.Embed(source=S.Values(size=5))),
    "both": recipe("t5", dim=8, depth=1, heads=2, vocab=11),
    "sparse": recipe("big-bird", dim=8, depth=1, heads=2, vocab=11, length=64, size=2),
    "disentangled": recipe("deberta-v2", dim=8, depth=2, heads=2, vocab=11, length=9),
    "transformed": model_of(S.FeedForward(), head=S.Span(transform=S.Transform())),
    "block": model_of(S.FeedForward(), head=S.Span(transform=S.Transform(hidden=5))),
    "pretraining": model_of(
        S.FeedForward(),
        head=S.Pretraining(tokens=S.Vocabulary(dense=True, bias=True, norm=S.LayerNorm())),
    ),
    "beams": model_of(S.FeedForward(), head=S.Beams()),
    "double": model_of(S.FeedForward(), head=S.Double()),
    "pixels": model_of(
        S.FeedForward(), embed=S.Embed(source=S.Patches(image=8, patch=4)), head=S.Pixels()
    ),
    "adaptive": model_of(
        S.FeedForward(),
        embed=S.Embed(source=S.Tokens(vocab=11, cutoffs=(4, 8), shrink=2)),
        head=S.Adaptive(cutoffs=(4, 8)),
    ),
}


@pytest.fixture
def poisoned():
    """Memory that nobody wrote is NaN."""
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.mark.parametrize("name", SPECS)
def test_every_parameter_and_buffer_is_drawn(name, poisoned):
    assert torch.empty(3).isnan().all()
    model = build(SPECS[name])
    bad = [
        n for n, t in [*model.named_parameters(), *model.named_buffers()] if not t.isfinite().all()
    ]
    assert not bad


def test_these_models_have_every_part():
    built = {type(m) for spec in SPECS.values() for m in build(spec).modules()}
    assert {part for part in PARTS.values() if part not in built} == set()


def test_matrices_are_normal_and_biases_zero():
    model = build(model_of(S.Attention(heads=2), S.FeedForward(), dim=128, init=S.Init(std=0.05)))
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            assert module.weight.std().item() == pytest.approx(0.05, rel=0.1)
            assert (module.bias == 0).all()
    assert model.embed.token.weight.std().item() == pytest.approx(0.05, rel=0.1)


def test_branch_outputs_of_shared_blocks_shrink_with_applications():
    stack = {"schedule": S.Shared(unique=1), "own": ("down",)}
    init = S.Init(std=0.02, depth_scaled=True)
    spec = model_of(S.Attention(heads=2), S.FeedForward(), dim=128, init=init, stack=stack)
    model = build(S.override(spec, "stack.depth", 8))
    first, second = model.stack.blocks[:2]
    for last in (first[0].branch.out, first[1].branch.down, second[1].maps["down"]):
        assert last.weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.1)


def test_branch_outputs_shrink_with_depth():
    spec = model_of(
        S.Attention(heads=2), S.FeedForward(), dim=128, init=S.Init(std=0.02, depth_scaled=True)
    )
    for blocks in (2, 8):
        model = build(S.override(spec, "stack.depth", blocks))
        small = 0.02 / math.sqrt(2 * blocks)
        attention, feed = (sub.branch for sub in model.stack.blocks[0])
        assert attention.out.weight.std().item() == pytest.approx(small, rel=0.1)
        assert feed.down.weight.std().item() == pytest.approx(small, rel=0.1)
        assert feed.up.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert attention.v.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_an_encoder_scales_with_its_own_depth():
    spec = recipe("encoder-decoder", dim=128, depth=2, heads=2, vocab=11)
    spec = S.override(spec, "encoder.init", S.Init(std=0.1, depth_scaled=True))
    spec = S.override(spec, "encoder.stack.depth", 8)
    model = build(spec)
    down = lambda part: part.stack.blocks[0][-1].branch.down.weight.std().item()
    assert down(model.encoder) == pytest.approx(0.1 / 4, rel=0.1)
    assert down(model) == pytest.approx(0.02, rel=0.1)


def test_heads_do_not_talk_yet():
    attention = build(SPECS["tokens"]).stack.blocks[0][0].branch
    assert torch.equal(attention.talk_pre, torch.eye(2))
    assert torch.equal(attention.talk_post, torch.eye(2))


def test_rezero_starts_closed():
    model = build(SPECS["rezero"])
    assert all(sub.residual.gain.item() == 0 for block in model.stack.blocks for sub in block)


def test_gates_start_open_towards_the_stream():
    spec = model_of(S.FeedForward(), residual=S.Gated(bias=2.0), dim=64)
    bias = build(spec).stack.blocks[0][0].residual.cell.bias_ih.view(3, 64)
    bound = 1 / math.sqrt(64)
    assert ((bias[1] - 2).abs() <= bound + 1e-6).all()
    assert (bias[[0, 2]].abs() <= bound).all()


def test_persistent_memories_have_the_size_of_keys_and_values():
    spec = model_of(S.Attention(heads=4, memory=64), dim=128)
    attention = build(spec).stack.blocks[0][0].branch
    assert attention.memory_k.std().item() == pytest.approx(32**-0.5, rel=0.1)
    assert attention.memory_v.std().item() == pytest.approx(64**-0.5, rel=0.1)


def test_positions_with_known_values():
    attention = build(SPECS["tokens"]).stack.blocks[0][0].branch
    assert attention.relative[1].slopes.tolist() == [2**-4, 2**-8]
    assert attention.mods[1].gain.tolist() == [2.0, 2.0]


def test_equal_seeds_give_equal_weights():
    torch.manual_seed(3)
    one = build(SPECS["tokens"]).state_dict()
    torch.manual_seed(3)
    two = build(SPECS["tokens"]).state_dict()
    assert all(torch.equal(one[k], two[k]) for k in one)


def test_fan_in_draws_what_t5_draws():
    spec = recipe("t5", dim=128, depth=1, heads=4, head_dim=16, hidden=512, vocab=300)
    model = build(S.override(spec, "head", S.Vocabulary(tied=False)))
    drawn = {"embed.token": 1.0, "head": 128**-0.5, "stack.relative.0.table": 128**-0.5}
    for side, feed in (("", 2), ("encoder.", 1)):
        maps = {"q": (128 * 16) ** -0.5, "k": 128**-0.5, "v": 128**-0.5, "out": 64**-0.5}
        drawn |= {f"{side}stack.blocks.0.0.branch.{name}": std for name, std in maps.items()}
        drawn |= {f"{side}stack.blocks.0.{feed}.branch.up": 128**-0.5}
        drawn |= {f"{side}stack.blocks.0.{feed}.branch.down": 512**-0.5}
    weights = model.state_dict()
    for name, std in drawn.items():
        found = weights[name if name in weights else f"{name}.weight"].std().item()
        assert found == pytest.approx(std, rel=0.15), name


def test_fan_in_gives_scores_of_one_deviation_under_any_scale():
    for scale in (None, 1.0, 0.5):
        spec = model_of(S.Attention(heads=4, scale=scale), dim=128, init=S.Init(std=1.0, fan=True))
        attention = build(spec).stack.blocks[0][0].branch
        x = torch.randn(50, 128)
        q, k = (map(x).view(50, 4, 32).transpose(0, 1) for map in (attention.q, attention.k))
        scores = q @ k.transpose(1, 2) * (32**-0.5 if scale is None else scale)
        assert scores.std().item() == pytest.approx(1.0, rel=0.2)


def test_fan_in_and_depth_go_together():
    init = S.Init(std=0.5, fan=True, depth_scaled=True)
    model = build(model_of(S.FeedForward(), dim=128, init=init))
    down = model.stack.blocks[0][0].branch.down.weight.std().item()
    assert down == pytest.approx(0.5 * 512**-0.5 / 2, rel=0.1)
