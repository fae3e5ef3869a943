"""transformers' class names over our models."""

import copy
import pickle

import pytest
import torch
import transformers

from anyformer.checkpoint.family import FAMILIES
from anyformer.compat import huggingface as hf
from anyformer.errors import AnyformerError
from anyformer.model.model import Model

TINY = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
}
PARAMETERS = transformers.BertForMaskedLM(transformers.BertConfig(**TINY)).num_parameters()
SEED_001 = ["Model", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification"]
SEED_001 += ["ForMultipleChoice", "ForTokenClassification", "ForQuestionAnswering"]


@pytest.fixture
def folder(tmp_path):
    config = transformers.BertConfig(**TINY)
    torch.manual_seed(0)
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SEED_001)
def test_every_class_of_roberta_prelayernorm(name):
    made = getattr(hf, f"RobertaPreLayerNorm{name}")
    model = made(hf.RobertaPreLayerNormConfig(**TINY, is_decoder=name == "ForCausalLM"))
    assert isinstance(model, Model)
    assert type(model).__name__ == f"RobertaPreLayerNorm{name}"


def test_every_architecture_of_every_family_has_its_class():
    names = {task.architecture for f in FAMILIES.values() for task in f.tasks.values()}
    assert names <= set(dir(hf))
    assert all(issubclass(getattr(hf, name), Model) for name in names)


def test_code_for_transformers_runs_with_another_import_line(folder):
    ids = torch.randint(0, 40, (2, 9))
    answers = []
    for library in (transformers, hf):
        model = library.BertForMaskedLM.from_pretrained(folder).eval()
        config = library.AutoConfig.from_pretrained(folder)
        assert config.hidden_size == model.config.hidden_size == 16
        assert config.num_labels == 2
        assert model.num_parameters() == PARAMETERS
        assert isinstance(model, library.BertForMaskedLM)
        assert not isinstance(model, library.BertModel)
        assert model.get_input_embeddings().weight.shape == (40, 16)
        assert (model.device.type, model.dtype) == ("cpu", torch.float32)
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
        pair = model(input_ids=ids, labels=ids, return_dict=False)[:2]
        assert torch.equal(pair[0], out.loss)
        answers.append((out.loss, out.logits, out["logits"], out[1]))
    for a, b in zip(*answers, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_auto_classes_find_the_family(folder):
    assert type(hf.AutoModel.from_pretrained(folder)) is hf.BertModel
    assert type(hf.AutoModelForMaskedLM.from_pretrained(folder)) is hf.BertForMaskedLM
    fresh = hf.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=5)
    assert type(fresh) is hf.BertForSequenceClassification
    assert fresh(torch.ones(1, 4, dtype=torch.long)).logits.shape == (1, 5)
    named = {0: "no", 1: "yes", 2: "maybe"}
    model = hf.BertForTokenClassification.from_pretrained(folder, id2label=named)
    assert model.config.num_labels == 3
    made = hf.AutoModelForCausalLM.from_config(hf.GPT2Config(n_embd=16, n_layer=1, n_head=2))
    assert type(made) is hf.GPT2LMHeadModel


def test_what_is_saved_loads_there(folder, tmp_path):
    model = hf.BertForMaskedLM.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path / "again").eval()
    ids = torch.randint(0, 40, (1, 7))
    torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-5)


def test_half_precision_and_other_sizes(folder):
    assert hf.BertModel.from_pretrained(folder, dtype=torch.bfloat16).dtype == torch.bfloat16
    model = hf.BertForMaskedLM.from_pretrained(folder)
    old = model.get_input_embeddings().weight.clone()
    assert model.resize_token_embeddings(50).weight.shape == (50, 16)
    assert torch.equal(model.get_input_embeddings().weight[:40], old)
    assert model(torch.full((1, 3), 49)).logits.shape == (1, 3, 50)
    assert model.config.vocab_size == 50


def test_copies_and_pickles(folder):
    model = hf.BertModel.from_pretrained(folder)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again) is hf.BertModel
        assert again.spec == model.spec


def test_configs(tmp_path):
    config = hf.BertConfig(**TINY, num_labels=3)
    assert config.num_labels == 3
    assert config.layer_norm_eps == 1e-12
    config.save_pretrained(tmp_path)
    assert hf.AutoConfig.from_pretrained(tmp_path) == config
    assert hf.AutoConfig.from_pretrained(tmp_path, hidden_size=8).hidden_size == 8
    assert transformers.BertConfig.from_pretrained(tmp_path).num_labels == 3
    with pytest.raises(AttributeError, match="hidden_size"):
        _ = config.hiden_size


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda f: hf.RobertaModel.from_pretrained(f), "use BertModel"),
        (lambda f: hf.BertModel.from_pretrained(f, trust_remote_code=True), "always False"),
        (lambda f: hf.BertModel.from_pretrained(f, quantize=4), "not quantize"),
        (lambda f: hf.AutoModelForSeq2SeqLM.from_pretrained(f), "seq2seq-lm"),
        (lambda f: hf.BertModel.from_pretrained(f / "no"), "no"),
    ],
)
def test_bad_input(folder, act, words):
    with pytest.raises(AnyformerError, match=words):
        act(folder)


def test_unknown_names():
    with pytest.raises(AttributeError, match="BertForMaskedLM"):
        _ = hf.BertForMaskdLM


def test_tokenizers(tmp_path):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat ##s sleep ."
    (tmp_path / "vocab.txt").write_text("\n".join(words.split()) + "\n")
    transformers.BertConfig(vocab_size=10).save_pretrained(tmp_path)
    texts = ["The cats sleep.", "Cats", "a cat"]
    ours = hf.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    for options in (
        {"padding": True, "return_tensors": "pt"},
        {"padding": "max_length", "max_length": 9},
        {"truncation": True, "max_length": 4},
        {"text_pair": ["cats"] * 3, "padding": True},
    ):
        a, b = ours(texts, **options), theirs(texts, **options)
        for name in ("input_ids", "attention_mask", "token_type_ids"):
            assert [list(row) for row in a[name]] == [list(row) for row in b[name]]
    batch = ours(texts, padding=True, return_tensors="pt").to("cpu")
    assert batch.input_ids.shape == batch["attention_mask"].shape
    ids = batch.input_ids[0].tolist()
    assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(
        ids, skip_special_tokens=True
    )
    assert ours.convert_ids_to_tokens(ids) == theirs.convert_ids_to_tokens(ids)
    assert ours.convert_tokens_to_ids(["cat", "dog"]) == theirs.convert_tokens_to_ids(
        ["cat", "dog"]
    )
    assert (ours.pad_token_id, ours.mask_token) == (theirs.pad_token_id, theirs.mask_token)
    assert (len(ours), ours.vocab_size) == (len(theirs), theirs.vocab_size)
    with pytest.raises(AnyformerError, match='"pt"'):
        ours(texts, return_tensors="np")
    with pytest.raises(AnyformerError, match="padding_side"):
        ours(texts, paddng_side="left")


@pytest.mark.parametrize("second", ["bert", "gpt2"])
def test_two_pretrained_models_become_one(folder, tmp_path, second):
    decoder = folder
    if second == "gpt2":
        settings = transformers.GPT2Config(
            vocab_size=40, n_embd=24, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
        transformers.GPT2LMHeadModel(settings).save_pretrained(tmp_path / "gpt2")
        decoder = tmp_path / "gpt2"
    model = hf.EncoderDecoderModel.from_encoder_decoder_pretrained(folder, decoder)
    parts = hf.BertModel.from_pretrained(folder), hf.AutoModel.from_pretrained(decoder)
    assert torch.equal(model.encoder.embed.token.weight, parts[0].embed.token.weight)
    assert torch.equal(model.embed.token.weight, parts[1].embed.token.weight)
    blocks = model.stack.blocks[0], parts[1].stack.blocks[0]
    assert torch.equal(blocks[0][0].branch.q.weight, blocks[1][0].branch.q.weight)
    assert torch.equal(blocks[0][2].branch.up.weight, blocks[1][1].branch.up.weight)
    model.save_pretrained(tmp_path / "pair")
    again = transformers.EncoderDecoderModel.from_pretrained(tmp_path / "pair").eval()
    given = {
        "input_ids": torch.randint(0, 40, (2, 7)),
        "decoder_input_ids": torch.ones(2, 3).long(),
    }
    torch.testing.assert_close(model(**given).logits, again(**given).logits, atol=1e-5, rtol=1e-5)


def test_only_pairs_are_joined(folder):
    with pytest.raises(AnyformerError, match="EncoderDecoderModel"):
        hf.BertModel.from_encoder_decoder_pretrained(folder, folder)
