"""PEFT wraps models: adapters train, are saved and loaded, and merge into the weights."""

import copy

import pytest
import torch
from torch import nn

from anyformer.compat import huggingface as hf
from anyformer.compat.peft import modules_to_save, target_modules
from anyformer.errors import AnyformerError
from anyformer.model.model import Model, build
from anyformer.recipes import recipe

SPECS = {
    "decoder": recipe("decoder", dim=16, depth=2, heads=2, vocab=50, length=16),
    "gated, grouped": recipe("llama", dim=16, depth=2, heads=2, kv_heads=1, hidden=24, vocab=50),
    "shared": recipe("recursive-gpt2", dim=16, depth=4, heads=2, vocab=50, length=16),
    "relative": recipe("transformer-xl", dim=16, depth=2, heads=2, hidden=24, vocab=50, memory=3),
    "encoder-decoder": recipe("t5", dim=16, depth=2, heads=2, hidden=24, vocab=50),
}
IDS = torch.arange(24).view(2, 12)
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50, "n_positions": 32}


@pytest.fixture
def peft():
    return pytest.importorskip("peft", reason="peft is not installed")


def batch(model):
    more = {"decoder_input_ids": IDS} if model.encoder is not None else {}
    return {"input_ids": IDS, "labels": IDS, **more}


def train(model, given):
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 2.0)
    for _ in range(3):
        model(**given).loss.backward()
        optimiser.step()
        optimiser.zero_grad()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.filterwarnings("ignore")
def test_adapters_train_load_and_merge(name, tmp_path, peft):
    base = build(SPECS[name]).eval()
    model, given = copy.deepcopy(base), batch(base)
    names = target_modules(model)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names))
    torch.testing.assert_close(wrapped(**given).loss, base(**given).loss)
    wrapped(**given).loss.backward()
    reached = {n for n, p in wrapped.named_parameters() if p.grad is not None}
    assert len(reached) == 2 * len(names)  # an adapter that nothing reads would learn nothing
    train(wrapped, given)
    logits = wrapped(**given).logits
    assert (logits - base(**given).logits).abs().max() > 1e-4
    wrapped.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path).eval()
    assert torch.equal(again(**given).logits, logits)
    merged = again.merge_and_unload()
    assert type(merged) is Model
    assert merged.state_dict().keys() == base.state_dict().keys()
    torch.testing.assert_close(merged(**given).logits, logits, atol=5e-4, rtol=1e-3)


@pytest.mark.filterwarnings("ignore")
def test_a_wrapped_model_generates_and_is_saved_merged(tmp_path, peft):
    from anyformer import load

    model = build(SPECS["decoder"]).eval()
    names = target_modules(model, "attention")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=names))
    train(wrapped, batch(model))
    made = wrapped.generate(IDS, max_new_tokens=3)
    merged = wrapped.merge_and_unload()
    assert torch.equal(made, merged.generate(IDS, max_new_tokens=3))
    merged.save_pretrained(tmp_path)
    assert torch.equal(load(tmp_path)(IDS).logits, merged(IDS).logits)


TASKS = {
    "CAUSAL_LM": ("GPT2LMHeadModel", {"labels": IDS}),
    "SEQ_CLS": ("GPT2ForSequenceClassification", {"labels": torch.tensor([0, 1])}),
    "TOKEN_CLS": ("GPT2ForTokenClassification", {"labels": IDS % 2}),
    "QUESTION_ANS": (
        "GPT2ForQuestionAnswering",
        {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])},
    ),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.filterwarnings("ignore")
def test_task_types_with_models_under_transformers_names(task, tmp_path, peft):
    name, labels = TASKS[task]
    base = getattr(hf, name)(hf.GPT2Config(**GPT2, pad_token_id=0)).eval()
    whole = None if task == "CAUSAL_LM" else modules_to_save(base)
    config = peft.LoraConfig(
        r=2, task_type=task, target_modules=target_modules(base), modules_to_save=whole
    )
    wrapped = peft.get_peft_model(copy.deepcopy(base), config)
    assert type(wrapped).__name__.startswith("PeftModelFor")
    train(wrapped, {"input_ids": IDS, **labels})
    trained = {n for n, p in wrapped.named_parameters() if p.requires_grad and "lora" not in n}
    assert all(".head." in n for n in trained)
    assert bool(trained) == (task != "CAUSAL_LM")
    wrapped.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path).eval()
    given = {"input_ids": IDS, **labels}
    assert torch.equal(again(**given).loss, wrapped.eval()(**given).loss)
    if task == "CAUSAL_LM":
        assert wrapped.generate(input_ids=IDS, max_new_tokens=2).shape == (2, 14)


def test_names_are_those_of_linear_maps():
    for name, spec in SPECS.items():
        model = build(spec)
        both = target_modules(model, "attention") + target_modules(model, "feedforward")
        assert sorted(target_modules(model)) == sorted(both), name
        assert all(isinstance(model.get_submodule(n), nn.Linear) for n in both)
        assert not any("project" in n or n.startswith("head") for n in both)


def test_bad_names():
    model = build(SPECS["decoder"])
    with pytest.raises(AnyformerError, match="attention"):
        target_modules(model, "atention")  # type: ignore[arg-type]
    assert modules_to_save(model) == []
    model.head = None
    with pytest.raises(AnyformerError, match="no head"):
        modules_to_save(model)
