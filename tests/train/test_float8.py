"""Wide maps in float8 while a model is trained, and there alone."""

import copy
import shutil

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.model.model import build
from anyformer.ops import float8 as products
from anyformer.recipes import recipe
from anyformer.train import float8, resume, train
from anyformer.train.prepare import prepare
from anyformer.train.settings import Evaluation, Settings, Spreading, check
from tests.train.tiny import LENGTH, VOCAB, Numbers, TinyCausal, settings, spec, weights

DATA = (Numbers(), Numbers(size=8, seed=1))
ON = {"float8": True, "precision": "bfloat16"}


@pytest.fixture
def small(monkeypatch):
    """Small maps count as wide, and the twin of a CPU as a device that has such products."""
    monkeypatch.setattr(float8, "WIDE", 16)
    monkeypatch.setattr(products, "fault", lambda device: None)


def _model(**options):
    torch.manual_seed(0)
    return build(spec(dropout=0.0, **options)).train()


def _gradients(model):
    ids = torch.arange(2 * LENGTH).view(2, LENGTH) % VOCAB
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(ids, labels=ids).loss
    loss.backward()
    return {"loss": loss.detach()} | {n: p.grad for n, p in model.named_parameters()}


def _assert_near(found, wanted, most):
    assert found.keys() == wanted.keys()
    assert found["loss"].item() == pytest.approx(wanted["loss"].item(), rel=1e-3)
    floor = 0.01 * max(g.norm() for n, g in wanted.items() if n != "loss")  # biases of keys: 0
    for name, value in wanted.items():
        assert (found[name] - value).norm() < most * value.norm() + floor, name


def _narrowed(model):
    return {n for n, m in model.named_modules() if "forward" in m.__dict__}


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_it_goes_with_bfloat16_alone(precision):
    with pytest.raises(SpecError, match=r"Take precision='bfloat16', or leave it out"):
        check(Settings(float8=True, precision=precision))
    assert check(Settings(**ON)).float8


def test_maps_that_are_cut_are_refused():
    cut = Settings(spreading=Spreading(tensor=2), **ON)
    with pytest.raises(SpecError, match=r"spreading\.tensor=2 cuts them: leave one out"):
        check(cut, world=2)


def test_a_device_without_it_is_refused_before_a_step():
    with pytest.raises(SpecError, match=r"float8=True: cpu has no .* or take another device"):
        prepare(_model(), settings(**ON))


def test_a_narrow_model_is_refused(monkeypatch):
    monkeypatch.setattr(products, "fault", lambda device: None)
    with pytest.raises(SpecError, match=r"1536 or more.*has 16: leave it out, or take a wider"):
        prepare(_model(), settings(**ON))


def test_maps_of_blocks_and_no_others(small, capsys):
    model = _model()
    keys = list(model.state_dict())
    prepare(model, settings(**ON))
    maps = {f"branch.{m}" for m in ("q", "k", "v", "out")}, {"branch.up", "branch.down"}
    wanted = {f"stack.blocks.{b}.{s}.{m}" for b in (0, 1) for s in (0, 1) for m in maps[s]}
    assert _narrowed(model) == wanted
    assert "12 maps in float8" in capsys.readouterr().err
    assert list(model.state_dict()) == keys


def test_both_widths_count_and_are_even(small, monkeypatch):
    monkeypatch.setattr(float8, "WIDE", 32)
    model = build(recipe("llama", dim=40, depth=1, heads=5, kv_heads=1, hidden=64, vocab=VOCAB))
    with pytest.raises(SpecError, match="multiples of 16"):
        float8.narrow(model)
    model = build(recipe("llama", dim=48, depth=1, heads=6, kv_heads=1, hidden=64, vocab=VOCAB))
    assert float8.narrow(model) == 5  # k and v have 8 outputs


def test_maps_in_place_of_shared_ones_are_narrowed_and_updates_are_not(small):
    lora = {"stack.own": ("down",), "stack.lora": S.Lora(rank=4)}
    model = _model(**{"stack.schedule": S.Shared(unique=1), **lora})
    prepare(model, settings(**ON))
    found = _narrowed(model)
    assert "stack.blocks.1.1.maps.down" in found and len(found) == 7
    assert all(g.isfinite().all() for g in _gradients(model).values())


def test_training_differs_and_evaluation_does_not(small):
    model, plain = _model(), _model()
    prepare(model, settings(**ON))
    ids = torch.randint(0, VOCAB, (2, LENGTH))
    assert not torch.equal(model(ids).logits, plain(ids).logits)
    assert torch.equal(model.eval()(ids).logits, plain.eval()(ids).logits)


def test_gradients_are_near_plain_ones(small):
    model, plain = _model(), _model()
    prepare(model, settings(**ON))
    found, wanted = _gradients(model), _gradients(plain)
    assert found["loss"] != wanted["loss"]
    _assert_near(found, wanted, 0.3)


def test_a_copy_has_weights_of_its_own(small):
    model = _model()
    prepare(model, settings(**ON))
    other = copy.deepcopy(model)
    _gradients(other)
    assert all(p.grad is None for p in model.parameters())
    assert all(p.grad is not None for p in other.stack.parameters())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("recompute", [False, True])
def test_compiled_blocks_share_a_graph_and_give_the_same(small, recompute, monkeypatch):
    compiled, graphs = torch.compile, []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda f: compiled(f, backend=counted))
    torch._dynamo.reset()
    model, other = _model(depth=4), _model(depth=4)
    prepare(model, settings(**ON))
    prepare(other, settings(compile=True, recompute=recompute, **ON))
    found, wanted = _gradients(other), _gradients(model)
    assert 1 <= len(graphs) < 4
    assert all("float8_e4m3fn" in graph.print_readable(False) for graph in graphs)
    _assert_near(found, wanted, 0.1)  # another rounding of bfloat16 is another one of float8


def test_a_run_learns_and_goes_on_bit_for_bit(small, tmp_path, capsys):
    given = settings(steps=40, lr=1e-2, evaluation=Evaluation(every=20), **ON)
    run = train(spec(), DATA, TinyCausal(), tmp_path / "whole", given)
    losses = [r["loss"] for r in run.history if "loss" in r]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    assert "12 maps in float8" in capsys.readouterr().err
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut/model")
    shutil.rmtree(tmp_path / "cut/checkpoints/step-00000040")
    assert resume(tmp_path / "cut", DATA).steps == 40
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    assert all(torch.equal(cut[name], tensor) for name, tensor in whole.items())
    assert not _narrowed(anyformer.load(tmp_path / "whole/model").train())


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("compile", [False, True])
def test_a_wide_model_learns_on_a_gpu(tmp_path, compile):
    if (wrong := products.fault(torch.device("cuda"))) is not None:
        pytest.skip(f"gpu: {wrong}")
    torch._dynamo.reset()
    wide = spec(dim=float8.WIDE, depth=1, heads=16, dropout=0.0)
    given = settings(steps=20, lr=1e-4, device="cuda", compile=compile, **ON)
    run = train(wide, DATA, TinyCausal(), tmp_path / "run", given)
    losses = [r["loss"] for r in run.history if "loss" in r]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
