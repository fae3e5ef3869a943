"""Which decoder a call gets: the same texts, a reason, and never a twin of other weights."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.generate import choice, forget, generate, stream, which
from anyformer.generate.choice import LEAST, WORTH, contents, decoder_of
from anyformer.generate.decoder import Growing
from anyformer.generate.prompt import Prompt
from anyformer.generate.static import Static
from anyformer.laws.cases import perturbed
from anyformer.laws.specs import VOCAB
from tests.generate.test_static import SWITCHES, decoder

IDS = torch.tensor([[3, 4, 5], [6, 7, 8]])
RAGGED = [[3, 4, 5], [6]]


def model_of(spec: S.Model | None = None):
    return perturbed(spec or decoder(), 0)


def kind(model, new=WORTH, **options):
    return which(model, IDS, new, **options).kind


def written(model, new=WORTH, **options):
    return generate(model, RAGGED, new, **options)


@pytest.mark.parametrize("name", ["learned", "rotary", "window", "t5 bias", "no place", "encoder"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"do_sample": True, "seed": 1, "num_return_sequences": 3},
        {"eos_token_id": 5, "repetition_penalty": 1.3},
    ],
    ids=["greedy", "beams", "drawn", "ends"],
)
def test_static_by_default_writes_what_growing_does(name, options):
    model = model_of(SWITCHES[name])
    more = {"decoder_start_token_id": 2} if model.encoder is not None else {}
    assert which(model, RAGGED, WORTH, **options, **more).kind == "static"
    found = written(model, **options, **more)
    assert torch.equal(found, written(model, decoder="growing", **options, **more))
    assert torch.equal(found, written(model, decoder="static", **options, **more))


def test_a_stream_of_static_is_that_of_growing():
    model = model_of()
    texts = [
        torch.stack([s.tokens for s in stream(model, RAGGED, WORTH, decoder=kind)])
        for kind in ("auto", "static", "growing")
    ]
    assert torch.equal(texts[0], texts[2]) and torch.equal(texts[1], texts[2])
    pair = [stream(model, [row], WORTH) for row in RAGGED]  # in turn, each with its own cache
    both = [torch.cat([s.tokens for s in turn]) for turn in zip(*pair, strict=True)]
    assert torch.equal(torch.stack(both), texts[2])


def test_a_twin_is_made_when_it_pays_and_stays():
    model = model_of()
    assert kind(model, LEAST - 1) == "growing"
    told = which(model, IDS, WORTH // 2)
    assert told.kind == "growing" and f"{WORTH} do" in told.reason
    for _ in range(2):
        written(model, WORTH // 2)
    assert kind(model, LEAST) == "static"  # two halves paid for one
    first = choice._KEPT[model].twin
    assert first is not None
    written(model)
    assert choice._KEPT[model].twin is first
    assert "is there" in which(model, IDS, LEAST).reason
    forget(model)
    assert model not in choice._KEPT and kind(model, LEAST) == "growing"


def stepped(model, **options):
    """One step of an optimiser."""
    generous = torch.optim.AdamW(model.parameters(), lr=0.3, **options)
    model(IDS, labels=IDS).loss.backward()
    generous.step()


def loaded(model, **options):
    """Another model's weights."""
    model.load_state_dict(perturbed(model.spec, 7).state_dict(), **options)


def written_over(model):
    """Weights changed where nothing but their values tells of it."""
    model.stack.blocks[0][1].branch.up.weight.data.mul_(-3.0)


def exchanged(model):
    """One part in another's place."""
    block = model.stack.blocks[0]
    block[1].branch = copy.deepcopy(model.stack.blocks[1][1].branch)


def hooked(model):
    """Somebody listens to a part, and changes what it says."""
    model.stack.blocks[1][1].branch.register_forward_hook(lambda m, x, y: -y)


CHANGES = {
    "plain step": lambda m: stepped(m, foreach=False),
    "foreach step": lambda m: stepped(m, foreach=True),
    "fused step": lambda m: stepped(m, fused=True),
    "load_state_dict": loaded,
    "load_state_dict, assign": lambda m: loaded(m, assign=True),
    "data": written_over,
    "one number": lambda m: m.embed.token.weight.data[0, 0].add_(9.0),
    "a part": exchanged,
    "a hook": hooked,
    "rows in another order": lambda m: m.embed.token.weight.data.copy_(
        m.embed.token.weight.data.flip(0)
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_twin_of_other_weights_is_never_used(change):
    model = model_of()
    before = written(model)
    old = choice._KEPT[model].twin
    CHANGES[change](model)
    found = written(model)
    assert torch.equal(found, written(model, decoder="growing"))
    assert not torch.equal(found, before)
    assert choice._KEPT[model].twin is not old


def test_a_number_for_any_tensor():
    odd = [torch.zeros(3), torch.zeros(0), torch.tensor(1.5), torch.zeros(2, 3).bool()]
    assert all(type(number) is int for number in contents(odd))
    for x in (torch.randn(5, 7).bfloat16(), torch.randn(70, 80), torch.randn(100, 90)):
        other = x.clone().flatten()
        other[torch.randint(x.numel(), ())] += 1.0
        told = contents([x, x.clone(), x.t(), other.view_as(x), x.flip(0)])
        assert told[0] == told[1] and len(set(told)) == 4


def test_what_static_cannot_serve_is_grown_and_says_why(monkeypatch):
    model = model_of()
    assert "segment memory" in which(model, IDS, WORTH, mem_len=8).reason
    with pytest.raises(InputError, match="segment memory"):
        generate(model, IDS, WORTH, mem_len=8, decoder="static")
    assert kind(model.float()) == "static"
    assert "float32" in which(copy.deepcopy(model).bfloat16(), IDS, WORTH).reason
    with torch.autocast("cpu"):
        assert "autocast" in which(model, IDS, WORTH).reason
    handle = model.register_forward_hook(lambda *_: None)
    assert "hooks" in which(model, IDS, WORTH).reason
    handle.remove()
    monkeypatch.setattr(choice, "free_bytes", lambda device: 1000)
    assert "too much" in which(model, IDS, WORTH).reason
    with pytest.raises(InputError, match="auto, static, growing"):
        generate(model, IDS, WORTH, decoder="statik")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="leave decoder out"):
        generate(model, IDS, WORTH, decoder="growing", draft=model)


def test_a_model_in_training_keeps_no_twin():
    model = model_of().train()
    assert kind(model) == "static"
    written(model)
    assert model not in choice._KEPT and model.training


def test_copies_files_and_the_end_of_a_model_know_no_twin():
    model = model_of()
    found = written(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other not in choice._KEPT
        assert torch.equal(written(other), found)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_long_answer_has_no_room_from_the_start():
    model = anyformer.build(anyformer.recipe("llama", dim=16, depth=1, heads=2, vocab=VOCAB)).eval()
    few, many = (_static(model, new) for new in (WORTH, 100_000))
    assert few.expected == WORTH - 1 and many.expected == choice.ROOM
    assert isinstance(decoder_of(model, Prompt(ids=IDS), _sampling(LEAST), "growing"), Growing)


def _sampling(new):
    from anyformer.generate import Sampling

    return Sampling(max_new_tokens=new)


def _static(model, new):
    found = decoder_of(model, Prompt(ids=IDS), _sampling(new))
    assert isinstance(found, Static)
    return found
