"""What a tokenizer does around its pipeline: rows, padding, cutting, roles, saving."""

import copy
import json
import pickle
import subprocess
import sys
import threading

import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors

import anyformer
from anyformer.data.tokenizer import Tokenizer
from anyformer.errors import CheckpointError, InputError
from tests.data import vocabularies as V


@pytest.fixture
def bert(tmp_path):
    return Tokenizer.load(V.folder(tmp_path / "bert", V.wordpiece(), {}, {"model_type": "bert"}))


@pytest.fixture
def gpt2(tmp_path):
    files = V.byte_level(("<|endoftext|>",))
    return Tokenizer.load(V.folder(tmp_path / "gpt2", files, {}, {"model_type": "gpt2"}))


def test_a_text_gives_lists_and_several_give_rows(bert):
    one, two = bert("the name"), bert(["the name", "a"])
    assert list(one) == ["input_ids", "token_type_ids", "attention_mask"]
    assert two["input_ids"][0] == one["input_ids"] and len(two["input_ids"]) == 2
    assert one["input_ids"] == [2, *bert.encode("the name"), 3]
    assert bert.encode("the name", special=True) == one["input_ids"]
    assert bert([])["input_ids"] == []


def test_tensors_have_rows_and_one_length(bert):
    found = bert("the name", tensors=True, also=["offset_mapping"])
    assert found["input_ids"].dtype == torch.long and found["input_ids"].shape[0] == 1
    assert found["offset_mapping"].shape == (*found["input_ids"].shape, 2)
    with pytest.raises(InputError, match="padding=True"):
        bert(["a", "the name of it"], tensors=True)
    assert bert(["a", "the name"], padding=True, tensors=True)["input_ids"].shape[0] == 2
    assert bert([], tensors=True)["input_ids"].shape == (0, 0)


def test_rows_are_padded_to_a_length_on_a_side(bert):
    found = bert(["a", "the name"], max_length=9, padding="max_length", side="left")
    assert {len(row) for row in found["input_ids"]} == {9}
    mask = found["attention_mask"][0]
    assert mask == sorted(mask) and found["input_ids"][0][: mask.count(0)] == [0] * mask.count(0)


def test_rows_are_cut_with_their_special_tokens(bert):
    found = bert("the name " * 20, "a second text", max_length=10)
    assert len(found["input_ids"]) == 10 and found["input_ids"].count(3) == 2
    assert len(bert("the name " * 20)["input_ids"]) > 10, "a cut does not stay"
    with pytest.raises(InputError, match="max_length 3"):
        bert("a", "b", max_length=3)


def test_threads_do_not_share_a_cut(bert):
    wrong, texts = [], ["the name of it " * 30] * 8

    def work(length: int) -> None:
        for _ in range(20):
            rows = bert(texts, max_length=length)["input_ids"]
            wrong.extend(row for row in rows if len(row) != length)

    threads = [threading.Thread(target=work, args=(length,)) for length in (5, 9, 17)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda t: t(5), "text must be"),
        (lambda t: t([b"x"]), "text must be"),
        (lambda t: t(["a"], "b"), "both"),
        (lambda t: t(["a", "b"], ["c"]), "2 texts but 1"),
        (lambda t: t("a", padding="maximal"), "padding"),
        (lambda t: t("a", padding="max_length"), "max_length"),
        (lambda t: t("a", padding=True, side="top"), "side"),
        (lambda t: t("a", also=["offsets"]), "offset_mapping"),
        (lambda t: t("lone \ud800"), "surrogates"),
        (lambda t: t.decode([5, -100]), "-100"),
        (lambda t: t.with_roles(pad="nowhere"), "nowhere"),
        (lambda t: t.with_roles(padding="[PAD]"), "did you mean 'pad'"),
        (lambda t: t.with_languages("en"), "no languages"),
    ],
)
def test_what_can_not_be_is_refused(bert, call, said):
    with pytest.raises(InputError, match=said):
        call(bert)


def test_a_role_that_is_missing_is_named_and_can_be_given(gpt2, tmp_path):
    with pytest.raises(InputError, match=r"no pad token.*with_roles\(pad="):
        gpt2(["a", "bb"], padding=True)
    with pytest.raises(InputError, match="no mask token"):
        gpt2.need("eos", "mask")
    padded = gpt2.with_roles(pad="<|endoftext|>")
    assert padded.need("pad") == gpt2.need("eos") and "pad" not in gpt2.roles
    assert len(set(map(len, padded(["a", "b c d"], padding=True)["input_ids"]))) == 1
    padded.save(tmp_path / "padded")
    assert Tokenizer.load(tmp_path / "padded", kind="gpt2").roles == padded.roles


def test_ids_and_tokens(bert):
    assert [bert.id(bert.token(i) or "") for i in range(len(bert))] == list(range(len(bert)))
    assert bert.token(len(bert)) is None and bert.id("no such token") is None
    assert bert.role_ids == {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    assert bert.decode(torch.tensor(bert("the name")["input_ids"])) == "the name"
    assert bert.batch_decode([[2, 3], [2, 4]], skip_special=False) == [
        "[CLS] [SEP]",
        "[CLS] [MASK]",
    ]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_saved_loaded_copied_and_pickled_are_the_same(name, request, tmp_path):
    ours = request.getfixturevalue(name)
    ours.save(tmp_path / "saved")
    (tmp_path / "only").mkdir()
    json_file = (tmp_path / "saved" / "tokenizer.json").read_bytes()
    (tmp_path / "only" / "tokenizer.json").write_bytes(json_file)
    again = Tokenizer.load(tmp_path / "only", kind=name)
    again.save(tmp_path / "third")
    assert (tmp_path / "third" / "tokenizer.json").read_bytes() == json_file
    assert (tmp_path / "saved" / "tokenizer_config.json").is_file()
    others = [Tokenizer.load(tmp_path / "saved", kind=name), again]
    for other in [*others, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]:
        assert other.roles == ours.roles and len(other) == len(ours)
        for text in V.TEXTS:
            assert other(text, "b", also=["offset_mapping"]) == ours(
                text, "b", also=["offset_mapping"]
            )


def test_tokenizer_json_is_taken_as_it_is(tmp_path):
    """Its template, its added tokens, but not its padding and truncation."""
    made = tokenizers.Tokenizer(models.WordLevel({"[U]": 0, "a": 1, "<x>": 2}, unk_token="[U]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(["<new>"])
    ids = [("<x>", 2), ("<new>", 3)]
    made.post_processor = processors.TemplateProcessing("<new> $A <x>", None, ids)
    made.enable_truncation(2)
    made.enable_padding(length=9)
    config = {"pad_token": "<x>", "model_input_names": ["input_ids", "token_type_ids"]}
    root = V.folder(tmp_path, {"tokenizer.json": made.to_str()}, config, {"vocab_size": 4})
    ours = anyformer.tokenizer(root)
    assert ours("a b a <new>")["input_ids"] == [3, 1, 0, 1, 3, 2]
    assert "token_type_ids" in ours("a") and ours.roles == {"pad": "<x>"}
    assert (ours.vocab_size, len(ours)) == (3, 4)


def test_torch_is_not_needed_to_tokenize(tmp_path):
    V.folder(tmp_path, V.wordpiece(), {}, {"model_type": "bert"})
    code = (
        "import sys; from anyformer.data.tokenizer import Tokenizer\n"
        "assert Tokenizer.load(sys.argv[1])('the name')['input_ids']\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_missing_library_is_named():
    code = "import sys; sys.modules['tokenizers'] = None; import anyformer; anyformer.tokenizer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install tokenizers" in done.stderr


def test_added_tokens_keep_their_ids(tmp_path):
    files = {**V.wordpiece(), "added_tokens.json": json.dumps({"<new>": 500, "<more>": 501})}
    config = {"additional_special_tokens": ["<last>"]}
    ours = Tokenizer.load(V.folder(tmp_path, files, config, {"model_type": "bert"}))
    assert [ours.id(token) for token in ("<new>", "<more>", "<last>")] == [500, 501, 502]
    assert (ours.vocab_size, len(ours)) == (500, 503)
    assert ours.tokens("the<more>the")[1] == "<more>"
    assert ours.decode([500, 501, 502, 2]) == "<new> <more>", "added tokens are no special ones"
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<new>": 507}))
    with pytest.raises(CheckpointError, match=r"'<new>' is given the id 507.*500"):
        Tokenizer.load(tmp_path)
