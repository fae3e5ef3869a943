"""What heads can be shared by ranks and what stays whole; one process plays one of two ranks."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from anyformer import build
from anyformer.errors import SpecError
from anyformer.objectives.base import Trainee
from anyformer.objectives.causal import Causal
from anyformer.recipes import recipe
from anyformer.train.parallel import layout, spread
from anyformer.train.settings import Spreading
from anyformer.train.tensor import split
from tests.distributed.cases import settings
from tests.distributed.helping import assert_done
from tests.objectives.samples import tokenizer

SIZES = {"dim": 16, "depth": 2, "heads": 4, "vocab": 31, "length": 8}
ATTENTION, FEED = "stack.block.0.branch", "stack.block.1.branch"


@pytest.fixture
def mesh():
    """Two ranks, of which this is the first; the other one is never there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield init_device_mesh("cpu", (2,), mesh_dim_names=("tensor",))
    dist.destroy_process_group()


def model(**options):
    return build(recipe("gpt2", **(SIZES | options)))


def cut(module: nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters() if isinstance(p, DTensor)}


def test_names_and_shapes_stay_and_heads_are_halved(mesh):
    found = model()
    before = {k: v.shape for k, v in found.state_dict().items()}
    assert split(found, mesh) == []
    assert {k: v.shape for k, v in found.state_dict().items()} == before
    names = {
        k.removeprefix("stack.blocks.0.") for k in cut(found) if k.startswith("stack.blocks.0.")
    }
    first = {f"0.branch.{n}.{p}" for n in "qkv" for p in ("weight", "bias")} | {
        "0.branch.out.weight"
    }
    second = {"1.branch.up.weight", "1.branch.up.bias", "1.branch.down.weight"}
    assert names == first | second
    weight = found.get_parameter("stack.blocks.0.0.branch.out.weight")
    assert isinstance(weight, DTensor) and weight.to_local().shape == (16, 8)


@pytest.mark.parametrize(
    ("switch", "value"),
    [
        ("talking", "both"),
        ("collaborate", 0.5),
        ("carry", True),
        ("memory", 3),
        ("mods", ({"is": "Temperature"},)),
    ],
)
def test_attentions_that_mix_heads_stay_whole(mesh, switch, value):
    from anyformer import spec as S

    value = tuple(S.from_dict(v) for v in value) if isinstance(value, tuple) else value
    found = model(**{f"{ATTENTION}.{switch}": value})
    kept = split(found, mesh)
    assert kept == [f"stack.blocks.{i}.0.branch ({switch})" for i in range(2)]
    assert not any(".0.branch." in name for name in cut(found))


def test_a_rank_has_the_slopes_of_its_heads(mesh):
    from anyformer import spec as S
    from anyformer.ops.attend import heard_by

    found = model(**{f"{ATTENTION}.relative": (S.ALiBi(learned=True),)})
    found.get_parameter("stack.blocks.0.0.branch.relative.0.slopes").data = torch.arange(4.0)
    assert split(found, mesh) == []
    heard: list[list[float]] = []
    with heard_by(lambda name, q, k, v, plan: heard.append(plan.relative.slope.tolist())):
        found(torch.arange(6)[None])
    assert heard[0] == [0.0, 1.0]


def test_adapters_and_low_rank_maps_stay_whole(mesh):
    class Wrapped(nn.Linear):
        pass

    found = model()
    found.stack.blocks[0][0].branch.q = Wrapped(16, 16)
    assert split(found, mesh) == ["stack.blocks.0.0.branch (an adapter)"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heads": 1}, "heads=1 can't be shared by tensor=2"),
        ({f"{FEED}.hidden": 33}, "hidden=33 can't be shared"),
        ({"heads": 6, "dim": 24, f"{ATTENTION}.kv_heads": 3}, "kv_heads=3 and tensor=2"),
    ],
)
def test_what_cant_be_shared_evenly_is_refused(mesh, options, says):
    with pytest.raises(SpecError, match=says):
        split(model(**options), mesh)


def test_a_model_of_which_nothing_can_be_split_is_refused(mesh):
    found = nn.Linear(2, 2)
    with pytest.raises(SpecError, match="nothing of this model"):
        split(found, mesh)


def test_shards_and_blocks_left_out_by_chance_are_refused(mesh):
    tok = tokenizer("gpt2")
    spec = recipe("gpt2", **{**SIZES, "vocab": len(tok), "stack.layer_dropout": 0.1})
    trainee = Trainee(build(spec), Causal(cross=True).bind(tok, spec))
    with pytest.raises(SpecError, match=r"layer_dropout=0\.1 with shards"):
        spread(trainee, settings(spreading=Spreading(kind="fsdp")))
    assert spread(trainee, settings(spreading=Spreading(kind="auto"))).world == 2


def test_ranks_drop_different_channels_and_agree_on_everything_else(tmp_path):
    assert_done(
        tmp_path, [{"case": "gpt2", "world": 2, "probe": "dropout", "out": str(tmp_path / "a")}]
    )


def test_layouts():
    trainee = model()
    of = lambda world, **given: layout(
        trainee, settings(spreading=Spreading(**given)), world
    ).axes()
    assert of(4) == {"replicate": 4}
    assert of(4, kind="fsdp") == {"shard": 4}
    assert of(4, kind="hsdp", replicas=2) == {"replicate": 2, "shard": 2}
    assert of(2, tensor=2) == {"tensor": 2}
    assert of(4, tensor=2) == {"shard": 2, "tensor": 2}
    assert of(8, kind="hsdp", replicas=2, tensor=2) == {"replicate": 2, "shard": 2, "tensor": 2}
    assert torch.distributed.is_available()
