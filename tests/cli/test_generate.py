"""anyformer generate."""

import io

import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint.huggingface import Origin
from anyformer.cli.main import main
from anyformer.data.tokenizer import Tokenizer
from anyformer.generate.telling import Telling
from tests.objectives.samples import tokenizer

NEW = ["--max-new-tokens", "12"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A decoder, a smaller one and an encoder-decoder, each with its tokenizer."""
    root = tmp_path_factory.mktemp("models")
    made = {}
    for name, recipe in (("writer", "gpt2"), ("draft", "gpt2"), ("translator", "t5")):
        style = ["--style", "t5"] if recipe == "t5" else []
        out = str(root / name)
        assert main(["tokenizer", "train", "bytes", *style, "--out", out]) == 0
        torch.manual_seed(len(name))
        size = {"dim": 16, "depth": 1 + (name == "writer"), "heads": 2}
        spec = anyformer.recipe(recipe, **size, vocab=len(Tokenizer.load(out)))
        if recipe == "gpt2":
            spec = S.override(S.override(spec, "embed.position.length", 64), "head.tied", False)
        anyformer.build(S.override(spec, "init.std", 0.5)).save_pretrained(out)
        made[name] = out
    return made


def said(words, capsys, monkeypatch=None, typed=None):
    """What a command prints."""
    if monkeypatch is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    capsys.readouterr()
    assert main(["generate", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def wanted(folder, prompt, new=12, **options):
    """What the model writes behind a prompt."""
    model, words = anyformer.load(folder), Tokenizer.load(folder)
    ids = words.encode(prompt, special=model.encoder is not None)
    eos = words.role_ids["eos"]
    found = model.generate([ids], new, eos_token_id=eos, **options)[0].tolist()
    start = len(ids) if model.encoder is None else 1
    return words.decode(found[start:])


def test_a_text_is_continued(folders, capsys, monkeypatch):
    found = said([folders["writer"], "Once", *NEW], capsys)
    assert found == wanted(folders["writer"], "Once") + "\n"
    piped = said([folders["writer"], "-", *NEW], capsys, monkeypatch, "Once\n")
    assert piped == found
    drafted = said([folders["writer"], "Once", *NEW, "--draft", folders["draft"]], capsys)
    assert drafted == found


def test_options_are_flags(folders, capsys):
    drawn = [folders["writer"], "Once", *NEW, "--temperature", "2", "--top-k", "9", "--seed", "4"]
    options = {"do_sample": True, "temperature": 2.0, "top_k": 9, "seed": 4}
    assert said(drawn, capsys) == wanted(folders["writer"], "Once", **options) + "\n"
    beams = [folders["translator"], "Hello", *NEW, "--num-beams", "3", "--length-penalty", "2"]
    options = {"num_beams": 3, "length_penalty": 2.0}
    assert said(beams, capsys) == wanted(folders["translator"], "Hello", **options) + "\n"
    several = said([*drawn, "--num-return-sequences", "2"], capsys)
    assert several.startswith(said(drawn, capsys)[:-1])
    whole = wanted(folders["writer"], "Once")
    stopped = said([folders["writer"], "Once", *NEW, "--stop", whole[2:4]], capsys)
    assert whole.startswith(stopped[:-1]) and stopped[:-1].endswith(whole[2:4])


def test_a_chat_goes_on_without_reading_twice(folders, capsys, monkeypatch):
    new = ["--max-new-tokens", "5"]
    found = said([folders["writer"], "--chat", *new], capsys, monkeypatch, "Once\nthere\n")
    model, words = anyformer.load(folders["writer"]), Tokenizer.load(folders["writer"])
    ids, answers = [], []
    for line in ("Once\n", "there\n"):
        ids += words.encode(line)
        before = len(ids)
        ids = model.generate([ids], 5, eos_token_id=words.role_ids["eos"])[0].tolist()
        answers.append(words.decode(ids[before:]))
    assert found == "".join(f"{answer}\n" for answer in answers)


def test_a_chat_ends_where_positions_do(folders, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Once\n" * 30))
    assert main(["generate", folders["writer"], "--chat", *NEW]) == 2
    assert "has used the model's 64 positions" in capsys.readouterr().err


def test_long_answers_are_cut_to_the_models_positions(folders, capsys):
    assert said([folders["writer"], "Once"], capsys)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{writer}", ""], "the prompt is empty"),
        (["{writer}", "a" * 65], "needs 65 positions"),
        (["{writer}", "a", "--top-p", "2"], "top_p must be"),
        (["{writer}", "a", "--language", "de"], "FROM:TO"),
        (["{writer}", "a", "--language", "en:de"], "no languages"),
        (["{writer}", "--chat", "--num-beams", "2"], "leave beams"),
        (["{translator}", "--chat", "a"], "an encoder-decoder reads each anew"),
        (["/nowhere", "a"], "/nowhere"),
    ],
)
def test_errors_are_one_line(words, says, folders, capsys):
    capsys.readouterr()
    assert main(["generate", *(word.format(**folders) for word in words)]) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_characters_of_several_tokens_come_whole(folders):
    words = Tokenizer.load(folders["writer"])
    telling = Telling(words.decode, words.encode("a"))
    pieces = [telling.add(i) for i in words.encode("é → b")]
    assert "".join(pieces) == "é → b" and not any("\ufffd" in piece for piece in pieces)
    assert telling.add(words.encode("é")[0]) == "" and telling.end() == "\ufffd"


def test_a_translation_begins_with_its_language(tmp_path, capsys):
    words = tokenizer("m2m_100")
    torch.manual_seed(0)
    size = {"dim": 16, "depth": 1, "heads": 2, "hidden": 24}
    spec = anyformer.recipe("m2m-100", vocab=len(words), **size)
    made = anyformer.build(spec)
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    made.origin = Origin("m2m_100", "seq2seq-lm", {})
    made.save_pretrained(tmp_path)
    words.save(tmp_path)
    model = anyformer.load(tmp_path)
    found = said([str(tmp_path), "the name", *NEW, "--language", "en:fr"], capsys)
    both = Tokenizer.load(tmp_path).with_languages("en", "fr")
    ids = both.encode("the name", special=True)
    assert ids[0] == both.id("__en__")
    new = model.generate(
        [ids], 12, forced_bos_token_id=both.id("__fr__"), eos_token_id=both.role_ids["eos"],
        pad_token_id=both.role_ids["pad"],
    )[0, 1:]  # fmt: skip
    assert int(new[0]) == both.id("__fr__") and found == both.decode(new.tolist()) + "\n"
    other = said([str(tmp_path), "the name", *NEW, "--language", "fr:en"], capsys)
    assert other != found
    for language, told in (("en", "FROM:TO"), ("en:xx", "xx")):
        assert main(["generate", str(tmp_path), "a", "--language", language]) != 0
        assert told in capsys.readouterr().err
