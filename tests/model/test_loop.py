"""Stacks with a loop against the same blocks run by hand."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import with_rounds
from anyformer.errors import SpecError
from anyformer.model.count import memory
from anyformer.model.extra import expected_sum, weights
from anyformer.model.model import build
from anyformer.train.prepare import prepare
from anyformer.train.settings import Settings

SIZES = {"dim": 16, "depth": 6, "heads": 2, "vocab": 23, "length": 12}
IDS = torch.randint(0, 23, (2, 9), generator=torch.Generator().manual_seed(1))
LOOPED = S.Looped(prelude=1, core=2, coda=1, loops=2)
HALTS = [S.Act(), S.Exit(), S.Route(), S.Route(choice="expert", future=True)]


def spec_of(loop, kind="decoder", schedule=LOOPED, **changes):
    """A small model with a loop."""
    depth = 5 if isinstance(schedule, S.Looped) and not schedule.coda else 6
    spec = anyformer.recipe(kind, **SIZES | {"length": 99})
    stack = replace(spec.stack, depth=depth, schedule=schedule, loop=loop, **changes)
    return S.check(replace(spec, stack=stack))


def made(loop, *args, **changes):
    """A model in float64, no weight at its start."""
    torch.manual_seed(0)
    model = build(spec_of(loop, *args, **changes)).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
        if loop is not None and isinstance(loop.halt, S.Route):  # positions go unlike far
            model.stack.loop.halt.weight.normal_()
    return model


def by_hand(model, inject, step=None):
    """The last hidden states of a decoder of LOOPED's order, run block by block."""
    stack, loop = model.stack, model.stack.loop
    blocks, held = stack.blocks, []

    def catch(module, args, out):
        held.append(args[1])

    hook = blocks[0].register_forward_hook(catch)
    inputs = []
    other = blocks[0].register_forward_pre_hook(lambda m, a: inputs.append(a[0]))
    model(IDS)
    hook.remove(), other.remove()
    call, x = replace(held[0], masks={}), inputs[0]
    x = e = blocks[0](x, call, "0")
    for t in range(2):
        x = inject(x, e)
        for j in (1, 2):
            x = x if step is None else x + step(loop, t)
            x = blocks[j](x, call, f"{2 * t + j}")
    return stack.ended(blocks[3](x, call, "5"))


# -------------------------------------------------------------- what it computes


@pytest.mark.parametrize(
    "schedule", [LOOPED, S.Shared(unique=2), S.Shared(unique=3, order="cycle")]
)
def test_a_loop_that_asks_for_nothing_changes_nothing(schedule):
    plain, looped = made(None, schedule=schedule), made(S.Loop(), schedule=schedule)
    assert looped.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(looped(IDS).logits, plain(IDS).logits)


def test_steps_start_as_nothing():
    model = build(spec_of(S.Loop(step="learned"))).eval()
    model.load_state_dict(model.state_dict())
    plain = build(spec_of(None)).eval()
    rest = {k: v for k, v in model.state_dict().items() if k != "stack.loop.step"}
    plain.load_state_dict(rest)
    assert model.stack.loop.step.shape == (2, 16)
    assert torch.equal(model(IDS).logits, plain(IDS).logits)


def test_learned_steps_join_before_each_application():
    model = made(S.Loop(step="learned"))
    wanted = by_hand(model, lambda h, e: h, lambda loop, t: loop.step[t])
    torch.testing.assert_close(model(IDS).last_hidden_state, wanted)


def test_injection_happens_before_each_round():
    model = made(S.Loop(inject="add"))
    torch.testing.assert_close(model(IDS).last_hidden_state, by_hand(model, lambda h, e: h + e))
    model = made(S.Loop(inject="gated"))
    part = model.stack.loop.inject
    torch.testing.assert_close(
        model(IDS).last_hidden_state, by_hand(model, lambda h, e: part(h, e, part.read(e)))
    )


def test_zeros_before_the_first_round():
    model = made(S.Loop(inject="add", start="zeros"))
    rounds = iter([0.0, 1.0])
    wanted = by_hand(model, lambda h, e: next(rounds) * h + e)
    torch.testing.assert_close(model(IDS).last_hidden_state, wanted)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "encoder-decoder"])
def test_keys_of_the_first_turn_by_hand(kind):
    """One head-by-head attention of the second turn with the first one's keys and values."""
    spec = S.override(anyformer.recipe(kind, **SIZES), "stack.depth", 2)
    both = spec.stack.block
    block = (both[0],) if kind != "encoder-decoder" else both[:2]
    stack = replace(spec.stack, block=block, schedule=S.Shared(unique=1), final_norm=None)
    stack = replace(stack, loop=S.Loop(keys="first"))
    model = build(replace(spec, stack=stack)).double().eval()
    given = (
        {"input_ids": IDS}
        if kind != "encoder-decoder"
        else {"input_ids": IDS, "decoder_input_ids": IDS.flip(1)}
    )
    own = build(replace(spec, stack=replace(stack, loop=None))).double().eval()
    own.load_state_dict(model.state_dict())
    out = model(**given, output_hidden_states=True).hidden_states
    plain = own(**given, output_hidden_states=True).hidden_states
    torch.testing.assert_close(out[1], plain[1])
    assert not torch.allclose(out[2], plain[2])
    sub, read = model.stack.blocks[0][0], out[0]
    a = sub.branch
    heads = lambda x: x.unflatten(-1, (2, 8)).transpose(1, 2)
    norm = lambda x: x if sub.norm is None or sub.place == "post" else sub.norm(x)
    q, k, v = heads(a.q(norm(out[1]))), heads(a.k(norm(read))), heads(a.v(norm(read)))
    said = F.scaled_dot_product_attention(q, k, v, is_causal=kind != "encoder")
    x = out[1] + a.out(said.transpose(1, 2).flatten(2))
    x = sub.norm(x) if sub.place == "post" else x
    if kind == "encoder-decoder":  # the keys of cross-attention are the same at each turn
        held = []
        hook = model.stack.blocks[0][1].register_forward_pre_hook(lambda m, args: held.append(args))
        model(**given)
        hook.remove()
        torch.testing.assert_close(held[1][0], x)
    else:
        torch.testing.assert_close(out[2], x)


def test_lent_keys_are_cached_once():
    model = made(S.Loop(keys="first"))
    past = model(IDS, use_cache=True).past_key_values
    assert set(past.kv) == {"0.0", "1.0", "2.0", "5.0"}
    spec, own = model.spec, S.override(model.spec, "stack.loop", None)
    assert memory(spec, 9).cache == memory(own, 9).cache * 4 // 6
    assert anyformer.count(spec, 9).flops < anyformer.count(own, 9).flops


# ------------------------------------------------------------------------ depth


def test_another_number_of_rounds_keeps_every_weight(tmp_path):
    model = made(S.Loop(inject="concat", drawn="uniform"))
    model.save_pretrained(tmp_path)
    deeper = anyformer.load(tmp_path, override={"stack.schedule.loops": 4, "stack.depth": 10})
    assert not deeper.report.fresh and not deeper.report.dropped and not deeper.report.converted
    assert len(deeper.stack.schedule) == 10
    again = with_rounds(model, 4)
    assert torch.equal(again(IDS).logits, deeper(IDS).logits)
    assert not torch.equal(again(IDS).logits, model(IDS).logits)
    assert torch.equal(with_rounds(again, 2)(IDS).logits, model(IDS).logits)


@pytest.mark.parametrize("schedule", [S.Shared(unique=1), S.Shared(unique=3, order="cycle")])
def test_shared_blocks_go_round_more_often(schedule):
    model = made(S.Loop(step="sinusoidal"), schedule=schedule)
    rounds = 6 // schedule.unique
    assert torch.equal(with_rounds(model, rounds)(IDS).logits, model(IDS).logits)
    assert with_rounds(model, 1).spec.stack.depth == schedule.unique
    assert with_rounds(model, 1)(IDS).logits.shape == (2, 9, 23)


def test_learned_steps_go_on_with_zeros():
    model = made(S.Loop(step="learned"))
    step = with_rounds(model, 4).stack.loop.step
    assert torch.equal(step[:2], model.stack.loop.step) and not step[2:].any()
    assert torch.equal(with_rounds(model, 1).stack.loop.step, model.stack.loop.step[:1])


def test_rounds_need_a_schedule_that_goes_round():
    plain = build(anyformer.recipe("decoder", **SIZES))
    with pytest.raises(SpecError, match="goes round"):
        with_rounds(plain, 3)


def test_drawn_rounds_follow_the_seed_and_change_the_answer():
    model = made(S.Loop(inject="add", drawn="poisson", most=9)).train()

    def answer(seed):
        torch.manual_seed(seed)
        return model(IDS, output_hidden_states=True)

    assert torch.equal(answer(3).logits, answer(3).logits)
    depths = {len(answer(seed).hidden_states) for seed in range(12)}
    assert len(depths) > 2
    assert len(model.eval()(IDS, output_hidden_states=True).hidden_states) == 7


@pytest.mark.parametrize("halt", [None, S.Act()])
def test_a_window_learns_through_the_last_rounds(halt):
    model = made(S.Loop(inject="add", window=1, halt=halt))
    found = grads(model.train())
    looped = model.stack.loop
    model.stack.loop.spec = replace(looped.spec, window=None)
    real, calls = looped.injected, []

    def cut(h, e, read):  # what the last of two rounds starts from is held still
        calls.append(h)
        return real(h.detach() if len(calls) == 2 else h, e, read)

    looped.injected = cut
    if halt is None:
        wanted = grads(model)
        for name, gradient in wanted.items():
            torch.testing.assert_close(found[name], gradient, msg=name)
    model.stack.loop.spec = replace(looped.spec, window=5)
    looped.injected = real
    whole = grads(model)
    key = "stack.blocks.1.0.branch.q.weight"
    assert not torch.allclose(whole[key], found[key])
    assert found["embed.token.weight"].any()


def test_a_window_under_autocast_still_learns():
    model = build(spec_of(S.Loop(inject="add", window=1))).train()
    with torch.autocast("cpu", torch.bfloat16):
        model(IDS, labels=IDS).loss.backward()
    assert all(p.grad is not None and p.grad.any() for p in model.stack.blocks[1].parameters())


def grads(model):
    """The gradient of every parameter of a training loss."""
    model.zero_grad()
    torch.manual_seed(0)
    model(IDS, labels=IDS).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


# -------------------------------------------------------------------- halting


@pytest.mark.parametrize("inject", ["none", "concat", "gated", "stable"])
@pytest.mark.parametrize("halt", [None, *HALTS])
def test_every_parameter_learns(halt, inject):
    schedule = replace(LOOPED, coda=0) if isinstance(halt, S.Exit) else LOOPED
    loop = S.Loop(step="learned", inject=inject, halt=halt, keys="first")
    found = grads(made(loop, schedule=schedule).train())
    names = {name for name, _ in made(loop, schedule=schedule).named_parameters()}
    still = {name for name in names if name not in found or not found[name].any()}
    assert {n for n in still if not n.endswith("k.bias")} == set()  # which softmax doesn't see


@pytest.mark.parametrize("halt", HALTS)
def test_padding_adds_nothing_to_the_loss(halt):
    schedule = replace(LOOPED, coda=0) if isinstance(halt, S.Exit) else LOOPED
    model = made(S.Loop(halt=halt), schedule=schedule).train()
    mask = torch.ones_like(IDS)
    mask[1, 5:] = 0
    found = model(IDS, attention_mask=mask).extra
    rows = [model(IDS[:1]).extra, model(IDS[1:, :5]).extra]
    ((name, value),) = found.items()
    assert name in weights(model.spec)
    torch.testing.assert_close(value, rows[0][name] + rows[1][name])


def test_the_loss_of_training_has_the_ponder_cost():
    model = made(S.Loop(halt=S.Act(cost=0.5))).train()
    out, plain = model(IDS, labels=IDS), model.eval()(IDS, labels=IDS)
    torch.testing.assert_close(out.loss, plain.loss + 0.5 * out.extra["ponder"] / IDS.numel())


def test_an_exit_is_trained_on_all_rounds():
    schedule = replace(LOOPED, coda=0)
    model = made(S.Loop(halt=S.Exit(beta=0.3)), schedule=schedule).train()
    out = model(IDS, labels=IDS)
    logits, p = out.exits
    assert logits.shape == (2, 2, 9, 23) and p.shape == (2, 9, 2)
    total = torch.zeros(()).double()
    for t in range(2):
        for b in range(2):
            for n in range(8):
                row = logits[t, b, n].log_softmax(-1)
                total -= p[b, n, t] * row[IDS[b, n + 1]]
    torch.testing.assert_close(expected_sum(logits[:, :, :-1], p[:, :-1], IDS[:, 1:]), total)
    torch.testing.assert_close(out.loss, total / 16 + 0.3 * out.extra["exit"] / 18)
    shallow = with_rounds(model.eval(), 1)(IDS).logits
    leaves = model(IDS).logits
    early = p[..., 0] >= 0.5
    torch.testing.assert_close(leaves[early], shallow[early])
    torch.testing.assert_close(leaves[~early], logits[1][~early])


def test_an_encoder_adds_under_its_own_name():
    spec = anyformer.recipe("encoder-decoder", **SIZES)
    spec = S.override(spec, "encoder.stack.schedule", S.Shared(unique=1))
    spec = S.override(spec, "encoder.stack.loop", S.Loop(halt=S.Act(cost=0.5)))
    model = build(spec).train()
    out = model(IDS, decoder_input_ids=IDS, labels=IDS)
    assert list(out.extra) == ["encoder.ponder"] == list(weights(spec))
    torch.testing.assert_close(
        out.loss - model.eval()(IDS, decoder_input_ids=IDS, labels=IDS).loss,
        0.5 * out.extra["encoder.ponder"] / IDS.numel(),
    )


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize("keys", ["own", "first"])
def test_recomputed_gradients_are_the_same(keys):
    loop = S.Loop(step="learned", inject="gated", halt=S.Act(), keys=keys)
    plain, again = made(loop).train(), made(loop).train()
    prepare(again, Settings(recompute=True))
    wanted = grads(plain)
    for name, gradient in grads(again).items():
        torch.testing.assert_close(gradient, wanted[name], msg=name)


def test_segments_remember_rounds_that_were_left_out():
    loop = S.Loop(inject="add", drawn="uniform")
    model = made(loop, recurrence=8).train()
    mems = None
    for seed in range(6):
        torch.manual_seed(seed)
        out = model(IDS, return_mems=True, **({} if mems is None else {"mems": mems}))
        mems = out.mems
        assert {rows.shape[1] for rows in mems.hidden.values()} == {8}
        assert torch.isfinite(out.logits).all()
