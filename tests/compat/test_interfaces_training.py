"""Models train in accelerate, transformers' Trainer and Lightning as in a loop of one's own."""

import copy
import inspect
import sys

import pytest
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file
from torch.utils import _pytree
from transformers.utils.generic import find_labels

from anyformer import spec as S
from anyformer.checkpoint.family import FAMILIES
from anyformer.compat import huggingface as hf
from anyformer.errors import AnyformerError
from anyformer.model.inputs import TYPES
from anyformer.model.model import Model, build
from anyformer.model.output import Output
from anyformer.recipes import recipe

VOCAB, STEPS, BATCH, LR = 50, 5, 4, 1e-2
SPECS = {
    "causal": recipe("decoder", dim=16, depth=2, heads=2, vocab=VOCAB, length=16),
    "masked": recipe("encoder", dim=16, depth=2, heads=2, vocab=VOCAB),
    "encoder-decoder": recipe("encoder-decoder", dim=16, depth=1, heads=2, vocab=VOCAB),
    "shared": recipe("albert", dim=16, depth=3, heads=2, vocab=VOCAB, head=S.Vocabulary()),
}
TRAINER = pytest.mark.filterwarnings("ignore")  # of the packages' own making


@pytest.fixture(autouse=True)
def _fresh_state():
    """Forget what accelerate keeps for the whole process."""
    yield
    if "accelerate" in sys.modules:
        sys.modules["accelerate"].state.AcceleratorState._reset_state(True)


def rows(count=STEPS * BATCH):
    ids = torch.randint(0, VOCAB, (count, 12))
    return [{"input_ids": r, "attention_mask": torch.ones_like(r), "labels": r} for r in ids]


def data(name):
    made = rows()
    return [{**r, "decoder_input_ids": r["input_ids"]} for r in made] if "-dec" in name else made


def collated(examples):
    return {name: torch.stack([e[name] for e in examples]) for name in examples[0]}


def plain(model, examples):
    """The losses of a loop of one's own."""
    optimiser = torch.optim.SGD(model.parameters(), LR)
    losses = []
    for start in range(0, len(examples), BATCH):
        loss = model(**collated(examples[start : start + BATCH])).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def same_weights(one, two):
    for (name, a), (other, b) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert name == other
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-6)


@TRAINER
@pytest.mark.parametrize("name", SPECS)
def test_accelerate_trains_as_a_plain_loop(name):
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model, examples = build(SPECS[name]), data(name)
    other = copy.deepcopy(model)
    expected = plain(other, examples)
    machine = accelerate.Accelerator(cpu=True)
    loader = torch.utils.data.DataLoader(examples, BATCH, collate_fn=collated)
    optimiser = torch.optim.SGD(model.parameters(), LR)
    wrapped, optimiser, loader = machine.prepare(model, optimiser, loader)
    losses = []
    for batch in loader:
        loss = wrapped(**batch).loss
        machine.backward(loss)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    assert losses == pytest.approx(expected, abs=1e-6)
    same_weights(machine.unwrap_model(wrapped), other)


@TRAINER
def test_accelerate_in_bfloat16_hands_on_a_whole_output():
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    model = accelerate.Accelerator(cpu=True, mixed_precision="bf16").prepare(build(SPECS["causal"]))
    out = model(**collated(rows(2)))
    assert isinstance(out, Output)
    assert out.logits.dtype == torch.float32
    out.loss.backward()


def arguments(folder, **more):
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    given = {"max_steps": STEPS, "per_device_train_batch_size": BATCH, "learning_rate": LR}
    given |= {"optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    given |= {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_steps": 1}
    given |= {"train_sampling_strategy": "sequential", "save_steps": 3}
    return transformers.TrainingArguments(str(folder), **given | more)


def losses_of(trainer):
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


@TRAINER
@pytest.mark.parametrize("name", SPECS)
def test_trainer_trains_as_a_plain_loop(name, tmp_path):
    model, examples = build(SPECS[name]), data(name)
    other, begun = copy.deepcopy(model), copy.deepcopy(model)
    noise = [{**e, "unknown": torch.tensor(1)} for e in examples]  # a column that is left out
    trainer = transformers.Trainer(model, arguments(tmp_path), train_dataset=noise)
    trainer.train()
    assert losses_of(trainer) == pytest.approx(plain(other, examples), abs=1e-6)
    same_weights(model, other)
    saved = load_file(tmp_path / "checkpoint-3" / "model.safetensors")
    assert saved.keys() == model.state_dict().keys()
    again = transformers.Trainer(begun, arguments(tmp_path), train_dataset=examples)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    same_weights(begun, model)


@TRAINER
@pytest.mark.parametrize("labelled", [True, False])
def test_trainer_evaluates_and_predicts(labelled, tmp_path):
    model, examples = build(SPECS["causal"]), rows(6)
    trainer = transformers.Trainer(
        model,
        arguments(tmp_path),
        compute_metrics=lambda p: {"right": (p.predictions.argmax(-1) == p.label_ids).mean()},
    )
    if not labelled:
        examples = [{k: v for k, v in e.items() if k != "labels"} for e in examples]
    found = trainer.predict(examples)
    logits = model(**collated(examples)).logits
    torch.testing.assert_close(torch.from_numpy(found.predictions), logits)
    if labelled:
        told = trainer.evaluate(examples)
        assert told["eval_loss"] == pytest.approx(model(**collated(examples)).loss.item(), abs=1e-6)
        assert "eval_right" in told


@TRAINER
def test_trainer_with_recomputed_activations_and_accumulation(tmp_path):
    model, examples = build(SPECS["causal"]), rows()
    other = copy.deepcopy(model)
    more = {"gradient_checkpointing": True, "gradient_accumulation_steps": 2}
    args = arguments(tmp_path, **more, per_device_train_batch_size=BATCH // 2)
    trainer = transformers.Trainer(model, args, train_dataset=examples)
    trainer.train()
    assert losses_of(trainer) == pytest.approx(plain(other, examples), abs=1e-6)
    same_weights(model, other)


def test_gradient_checkpointing_goes_on_and_off():
    model, batch = build(SPECS["causal"]), collated(rows(2))
    grads = []
    for act in (None, model.gradient_checkpointing_enable, model.gradient_checkpointing_disable):
        if act is not None:
            act()
        model.zero_grad()
        model(**batch).loss.backward()
        grads.append([p.grad for p in model.parameters()])
    for one, two, three in zip(*grads, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with pytest.raises(AnyformerError, match="no options"):
        model.gradient_checkpointing_enable(offload=True)


@TRAINER
@pytest.mark.parametrize(
    "name", ["BertForMaskedLM", "BertForPreTraining", "BertForQuestionAnswering"]
)
def test_trainer_takes_models_under_transformers_names(name, tmp_path):
    config = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 20}
    model = getattr(hf, name)(hf.BertConfig(**config)).eval()
    zero = torch.tensor(0)
    beside = {"next_sentence_label": zero, "start_positions": zero, "end_positions": zero + 1}
    taken = [p for p in inspect.signature(model.forward).parameters if p in {*beside, "labels"}]
    if name != "BertForQuestionAnswering":
        taken = [p for p in taken if "positions" not in p]
    kept = {"input_ids", "attention_mask", *taken}
    examples = [{k: v for k, v in {**r, **beside}.items() if k in kept} for r in rows(8)]
    trainer = transformers.Trainer(model, arguments(tmp_path, max_steps=2), train_dataset=examples)
    assert trainer.label_names == find_labels(getattr(transformers, name))
    assert trainer.evaluate(examples)["eval_loss"] == pytest.approx(
        model(**collated(examples)).loss.item(), abs=1e-6
    )
    trainer.train()
    assert trainer.state.total_flos > 0


@TRAINER
def test_trainer_smooths_labels_of_models_under_transformers_names(tmp_path):
    sizes = {"vocab_size": VOCAB, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    model, examples = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)).eval(), rows(6)
    trainer = transformers.Trainer(model, arguments(tmp_path, label_smoothing_factor=0.1))
    batch = collated(examples)
    logits, labels = model(**batch).logits[:, :-1], batch["labels"][:, 1:]
    loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
    assert trainer.evaluate(examples)["eval_loss"] == pytest.approx(loss.item(), abs=1e-6)


def test_signatures_name_the_labels_of_transformers():
    for family in FAMILIES.values():
        for task in family.tasks.values():
            theirs = getattr(transformers, task.architecture, None)
            if theirs is not None:
                ours = getattr(hf, task.architecture)
                assert find_labels(ours) == find_labels(theirs), task.architecture


def test_the_signature_of_a_model():
    model = build(SPECS["causal"])
    found = inspect.signature(model.forward).parameters
    left_out = {"next_sentence_label", "sentence_order_label", "mc_labels"}
    assert set(found) == set(TYPES) - left_out
    assert find_labels(Model) == ["labels"]
    assert all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in found.values())


def test_outputs_are_dicts_and_trees():
    model, batch = build(SPECS["causal"]), collated(rows(2))
    out = model(**batch)
    assert isinstance(out, dict)
    assert list(dict(out)) == ["loss", "logits"] == list(out)
    assert out.get("mems", 3) == 3
    assert out["last_hidden_state"] is out.last_hidden_state is not None
    leaves, shape = _pytree.tree_flatten(out)
    assert out.loss is leaves[0]
    assert _pytree.tree_unflatten(leaves, shape).last_hidden_state is out.last_hidden_state
    assert Output({"loss": out.loss}) == Output(loss=out.loss)
    loss, logits = model(**batch, return_dict=False)
    assert torch.equal(loss, out.loss)
    assert torch.equal(logits, out.logits)
    with pytest.raises(KeyError, match="other"):
        out["other"] = 1


@TRAINER
def test_lightning_trains_as_a_plain_loop(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")

    class Wrapped(lightning.LightningModule):
        def __init__(self, model):
            super().__init__()
            self.model, self.losses = model, []

        def training_step(self, batch, _):
            loss = self.model(**batch).loss
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), LR)

    module, examples = Wrapped(build(SPECS["causal"])), rows()
    other = copy.deepcopy(module.model)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=1, default_root_dir=tmp_path, **quiet
    )
    trainer.fit(module, torch.utils.data.DataLoader(examples, BATCH, collate_fn=collated))
    assert module.losses == pytest.approx(plain(other, examples), abs=1e-6)
    same_weights(module.model, other)
    (saved,) = tmp_path.rglob("*.ckpt")
    state = torch.load(saved, weights_only=True)["state_dict"]
    assert all(torch.equal(state[f"model.{k}"], v) for k, v in other.state_dict().items())
