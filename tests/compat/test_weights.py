"""State dicts of x-transformers: what the parity suite leaves out, and every complaint."""

import pytest
import torch

from anyformer.compat import x_transformers as ours
from anyformer.errors import CheckpointError, InputError
from tests.parity.carry import disturb
from tests.parity.oracles import x_transformers

NEW, OLD = "2.31.10", "0.12.3"
SIZES = {"dim": 32, "depth": 2, "heads": 4, "attn_dim_head": 8}
IDS = torch.arange(24).view(2, 12) % 20


def wrapped(package, layers="Decoder", **words):
    stack = getattr(package, layers)(**SIZES | words)
    return package.TransformerWrapper(num_tokens=20, max_seq_len=12, attn_layers=stack)


def assert_carried(theirs, mine, release=NEW):
    """Weights there and back, key by key."""
    disturb(theirs)
    state = theirs.eval().state_dict()
    ours.load_state_dict(mine, state, release)
    back = ours.state_dict(mine.eval(), release)
    assert set(back) == set(state)
    for key, value in back.items():
        torch.testing.assert_close(value, state[key], rtol=1e-5, atol=1e-6)
    theirs.load_state_dict(back)


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    "words",
    [{"macaron": True}, {"pre_norm": False}, {"attn_on_attn": True}, {"scale_residual": True}],
    ids=str,
)
def test_the_latest_release(words):
    theirs, mine = wrapped(x_transformers(NEW), **words), wrapped(ours, **words)
    assert_carried(theirs, mine)
    close(mine(IDS), theirs(IDS))


def test_the_loss_around_a_model():
    theirs, mine = wrapped(x_transformers(NEW)), wrapped(ours)
    outer = x_transformers(NEW).AutoregressiveWrapper(theirs)
    loss = ours.AutoregressiveWrapper(mine)
    assert_carried(outer, loss)
    close(loss(IDS), outer(IDS))


@pytest.mark.parametrize("tied", [False, True])
def test_a_pair_of_the_latest_release(tied):
    sizes = {"num_tokens": 20, "max_seq_len": 12, "depth": 1, "heads": 4, "attn_dim_head": 8}
    words = {f"{side}_{name}": v for side in ("enc", "dec") for name, v in sizes.items()}
    made = [
        p.XTransformer(dim=32, tie_token_emb=tied, **words) for p in (x_transformers(NEW), ours)
    ]
    assert_carried(*made)
    close(made[1](IDS, IDS), made[0](IDS, IDS))


def test_values_of_the_latest_release():
    made = [
        p.ContinuousTransformerWrapper(
            max_seq_len=12, dim_in=5, dim_out=6, attn_layers=p.Encoder(**SIZES)
        )
        for p in (x_transformers(NEW), ours)
    ]
    assert_carried(*made)
    x = torch.randn(2, 9, 5)
    close(made[1](x), made[0](x))


def assert_refused(said, state, mine=None, release=NEW):
    with pytest.raises(CheckpointError, match=said):
        ours.load_state_dict(mine or wrapped(ours), state, release)


def test_what_a_state_lacks_or_has_beyond_the_model_is_named():
    state = wrapped(x_transformers(NEW)).state_dict()
    short = {key: t for key, t in state.items() if "1.to_k" not in key}
    assert_refused("lacks what the model needs.*attn_layers.layers.0.1.to_k.weight", short)
    assert_refused("no row for.*'to_logits.biased'", state | {"to_logits.biased": IDS})
    assert_refused(
        "the shape .19, 32., not .20, 32.", state | {"to_logits.weight": torch.ones(19, 32)}
    )
    assert_refused("unknown release.*did you mean '0.12.3'", state, release="0.12.4")
    assert_refused("no row for", state, release=OLD)


def test_images_of_the_latest_release_are_read_otherwise():
    words = {"image_size": 8, "patch_size": 4, "num_classes": 3}
    made = [
        p.ViTransformerWrapper(attn_layers=p.Encoder(**SIZES), **words)
        for p in (x_transformers(NEW), ours)
    ]
    assert_refused("no row for.*patch_to_embedding.0.gamma", made[0].state_dict(), made[1])


def test_gains_that_differ_between_heads_are_refused():
    theirs = wrapped(x_transformers(NEW), attn_qk_rmsnorm=True)
    disturb(theirs)
    assert_refused("differ between heads", theirs.state_dict(), wrapped(ours, attn_qk_rmsnorm=True))


def test_another_constant_is_refused():
    words = {"rotary_pos_emb": True, "attn_dim_head": 32}
    state = wrapped(x_transformers(OLD), **words).state_dict()
    key = "attn_layers.rotary_pos_emb.inv_freq"
    mine = wrapped(ours, **words)
    ours.load_state_dict(mine, state, OLD)
    assert_refused("another 'attn_layers.rotary", state | {key: state[key] / 2}, mine, OLD)


def test_a_bias_that_a_release_has_no_place_for():
    mine = wrapped(ours)
    assert "to_logits.bias" not in ours.state_dict(mine)
    assert "to_logits.bias" in ours.state_dict(mine, OLD)
    disturb(mine)
    with pytest.raises(CheckpointError, match=r"no place for 'stack.*release='0\.12\.3'"):
        ours.state_dict(mine)


def test_only_the_classes_of_the_module():
    with pytest.raises(InputError, match="Linear is none of the classes"):
        ours.state_dict(torch.nn.Linear(2, 2))
