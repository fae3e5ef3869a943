"""Every kind against transformers' own tokenizers, over the same files of the older formats."""

import json
import warnings

import pytest

from anyformer.data.kinds import ROLES
from anyformer.data.tokenizer import Tokenizer
from tests.data import vocabularies as V

transformers = pytest.importorskip("transformers")

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SEEN = ["<mask> x", "a <mask>b", "[MASK] [SEP]x", "x<s>y </s>", "<unk> z", "<|endoftext|>q"]
MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True}
BERT = [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]
CASES = [
    *(("Bert", "bert", options) for options in BERT),
    ("DistilBert", "distilbert", {}),
    ("Electra", "electra", {}),
    ("GPT2", "gpt2", {}),
    ("GPT2", "gpt_neo", {"add_prefix_space": True}),
    ("GPT2", "opt", {"add_bos_token": True}),
    ("Roberta", "roberta", {"mask_token": MASK}),
    ("Roberta", "roberta", {"mask_token": MASK, "add_prefix_space": True}),
    ("Bart", "bart", {"mask_token": MASK}),
    ("Qwen2", "qwen2", {}),
    ("OpenAIGPT", "openai-gpt", {}),
]


def theirs_of(name: str, root):
    """Their tokenizer of a folder; what their import or loading warns of is not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, f"{name}Tokenizer").from_pretrained(root)


def files_of(name: str) -> dict[str, str]:
    if name in ("Bert", "DistilBert", "Electra"):
        return V.wordpiece()
    if name == "OpenAIGPT":
        vocab, merges = V.words(("<unk>",), lower=True)
        return {"vocab.json": json.dumps(vocab), "merges.txt": "#version\n" + V.lines(merges)}
    specials = FAIRSEQ if name in ("Roberta", "Bart") else ("<|endoftext|>",)
    return V.byte_level(specials)


def assert_same(theirs, ours, text, pair=None, offsets=True, **options) -> None:
    """Ids, types, masks and offsets of a text, and both decoded forms."""
    offsets = offsets and theirs.is_fast
    wanted = theirs(
        text,
        pair,
        return_special_tokens_mask=True,
        return_offsets_mapping=offsets,
        return_token_type_ids=True,
        **options,
    )
    cut = {"max_length": options["max_length"]} if "max_length" in options else {}
    also = ["special_tokens_mask", "token_type_ids"]
    found = ours(text, pair, also=also + ["offset_mapping"] * offsets, **cut)
    for key, value in wanted.items():
        assert found[key] == value, (text, key)
    for skip in (False, True):
        decoded = theirs.decode(wanted["input_ids"], skip_special_tokens=skip)
        assert ours.decode(found["input_ids"], skip) == decoded


def assert_same_face(theirs, ours) -> None:
    """Roles, ids of them, sizes."""
    roles = {role: getattr(theirs, f"{role}_token") for role in ROLES}
    assert ours.roles == {role: token for role, token in roles.items() if token is not None}
    assert ours.role_ids == {role: getattr(theirs, f"{role}_token_id") for role in ours.roles}
    assert (len(ours), ours.vocab_size) == (len(theirs), theirs.vocab_size)


@pytest.mark.parametrize(("name", "model", "options"), CASES, ids=str)
def test_every_text_is_read_alike(tmp_path, name, model, options):
    config = {"tokenizer_class": f"{name}Tokenizer", **options}
    if name == "Qwen2":
        config["unk_token"] = "<|endoftext|>"  # theirs has it where nothing is said
    root = V.folder(tmp_path, files_of(name), config, {"model_type": model})
    theirs, ours = theirs_of(name, root), Tokenizer.load(root)
    assert_same_face(theirs, ours)
    for text in [*V.TEXTS, *SEEN]:
        assert_same(theirs, ours, text)
    for text in V.TEXTS[::9]:
        assert_same(theirs, ours, text, "the second text")
        assert_same(theirs, ours, text, "the second text", max_length=12, truncation=True)


@pytest.mark.parametrize("name", ["Bert", "GPT2", "Roberta", "OpenAIGPT"])
def test_saved_by_one_is_loaded_by_the_other(tmp_path, name):
    config = {"tokenizer_class": f"{name}Tokenizer"}
    root = V.folder(tmp_path / "older", files_of(name), config, {})
    theirs, ours = theirs_of(name, root), Tokenizer.load(root)
    theirs.save_pretrained(tmp_path / "theirs")
    ours.save(tmp_path / "ours")
    again, back = Tokenizer.load(tmp_path / "theirs"), theirs_of(name, tmp_path / "ours")
    assert again.roles == ours.roles
    for text in V.TEXTS[::2]:
        wanted = theirs(text, "b")["input_ids"]
        assert again(text, "b")["input_ids"] == wanted
        assert back(text, "b")["input_ids"] == wanted
    again.save(tmp_path / "again")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()


def test_a_pair_of_deberta_has_one_separator_between(tmp_path):
    """As its authors have it; theirs puts two there, so only single texts are compared."""
    files = V.byte_level(("[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"))
    config = {"mask_token": {**MASK, "content": "[MASK]"}}
    root = V.folder(tmp_path, files, config, {"model_type": "deberta"})
    theirs, ours = theirs_of("Deberta", root), Tokenizer.load(root)
    assert_same_face(theirs, ours)
    for text in [*V.TEXTS, *SEEN]:
        assert_same(theirs, ours, text)
    found = ours("a", "b")
    assert found["input_ids"] == [1, *ours.encode("a"), 2, *ours.encode("b"), 2]
    assert found["token_type_ids"] == [0, 0, 0, 1, 1]


def test_a_pair_of_mpnet_has_two(tmp_path):
    text = V.wordpiece()["vocab.txt"]
    for old, new in [("[PAD]", "<pad>"), ("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>")]:
        text = text.replace(old, new)
    root = V.folder(tmp_path, {"vocab.txt": text}, {"mask_token": MASK}, {"model_type": "mpnet"})
    theirs, ours = theirs_of("MPNet", root), Tokenizer.load(root)
    for text in V.TEXTS[::3]:
        for pair in (None, "the second text"):
            assert ours(text, pair)["input_ids"] == theirs(text, pair)["input_ids"]


def test_opt_begins_with_its_end(tmp_path):
    ours = Tokenizer.load(V.folder(tmp_path, V.byte_level(FAIRSEQ), {}, {"model_type": "opt"}))
    assert ours("a")["input_ids"] == [2, *ours.encode("a")]


@pytest.mark.parametrize("side", ["left", "right"])
def test_batches_are_padded_alike(tmp_path, side):
    root = V.folder(tmp_path, V.wordpiece(), {}, {"model_type": "bert"})
    theirs, ours = theirs_of("Bert", root), Tokenizer.load(root)
    theirs.padding_side = side
    options = {"max_length": 20, "padding": True, "return_tensors": "pt"}
    wanted = theirs(V.ODD, V.ODD[::-1], truncation=True, return_special_tokens_mask=True, **options)
    found = ours(V.ODD, V.ODD[::-1], 20, True, side, tensors=True, also=["special_tokens_mask"])
    assert found.keys() == wanted.keys()
    assert all((found[key] == wanted[key]).all() for key in wanted)


def test_a_control_code_of_ctrl_is_a_token(tmp_path):
    vocab, merges = V.words(("<unk>",), lower=False)
    kept = [t for i, t in enumerate(sorted(vocab, key=vocab.__getitem__)) if i % 17 or i == 0]
    names = [t if t == "<unk>" else t[:-4] if t.endswith("</w>") else f"{t}@@" for t in kept]
    names.append("Wikipedia")
    lines = V.lines([*merges, *([a, b] for a, b in [("W", "iki"), ("Wiki", "pedia</w>")])])
    files = {"vocab.json": json.dumps({t: i for i, t in enumerate(names)})}
    root = V.folder(
        tmp_path, {**files, "merges.txt": f"#version: 0.2\n{lines}"}, {}, {"model_type": "ctrl"}
    )
    theirs, ours = theirs_of("CTRL", root), Tokenizer.load(root)
    assert_same_face(theirs, ours)
    for text in [*V.TEXTS, *SEEN]:
        assert_same(theirs, ours, text)
    assert ours.id("Wikipedia") == len(names) - 1
    assert [ours.token(i) for i in range(len(names))] == names


def test_xlm_cuts_words_as_moses_does(tmp_path):
    pytest.importorskip("sacremoses", reason="XLM's words are cut with sacremoses")
    specials = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
    vocab, merges = V.words(specials, lower=True)
    files = {"vocab.json": json.dumps(vocab), "merges.txt": V.lines(merges, end=" 7")}
    languages = {"lang2id": {"en": 0, "ro": 1}, "id2lang": {"0": "en", "1": "ro"}}
    root = V.folder(tmp_path, files, {}, {"model_type": "xlm"})
    theirs, ours = theirs_of("XLM", root), Tokenizer.load(root)
    assert_same_face(theirs, ours)
    for text in [*V.TEXTS, "Mr. Smith’s， 5 。 x", "a <special1> b"]:
        assert_same(theirs, ours, text)
        assert_same(theirs, ours, text, "the second text")
    V.folder(tmp_path, files, languages, {"model_type": "xlm"})
    both = Tokenizer.load(root).with_languages("ro")
    text = "Şi ţara îmi plăcea"
    assert both.tokens(text) == theirs.tokenize(text, lang="ro")
    assert set(both(text)["langs"]) == {1}
