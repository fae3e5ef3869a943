"""anyformer show: the tree, the tables, JSON and keys."""

import pytest

import anyformer
from anyformer.cli.main import main
from anyformer.cli.text import columns, in_bytes
from anyformer.recipes import recipe, recipes
from anyformer.spec import from_json, to_json

BERT = """\
Model(
  (embed): Embed(
    (token): Embedding(30522, 768)
    (position): Embedding(512, 768)
    (segment): Embedding(2, 768)
    (norm): LayerNorm((768,), eps=1e-12)
    (dropout): Dropout(p=0.1)
  )
  (stack): Stack(
    depth=12
    (blocks): ModuleList(
      (0-11): 12 x Block(
        (0): Sublayer(
          place=post
          (branch): Attention(
            heads=12, head_dim=64
            (q): Linear(in_features=768, out_features=768, bias=True)
            (k): Linear(in_features=768, out_features=768, bias=True)
            (v): Linear(in_features=768, out_features=768, bias=True)
            (out): Linear(in_features=768, out_features=768, bias=True)
            (dropout): Dropout(p=0.1)
          )
          (norm): LayerNorm((768,), eps=1e-12)
          (residual): Add()
          (dropout): Dropout(p=0.1)
        )
        (1): Sublayer(
          place=post
          (branch): FeedForward(
            act=gelu
            (up): Linear(in_features=768, out_features=3072, bias=True)
            (down): Linear(in_features=3072, out_features=768, bias=True)
          )
          (norm): LayerNorm((768,), eps=1e-12)
          (residual): Add()
          (dropout): Dropout(p=0.1)
        )
      )
    )
  )
  (head): Pooler(
    act=tanh
    (dense): Linear(in_features=768, out_features=768, bias=True)
  )
)

part          parameters   share   forward FLOPs   share
embed         23,837,184   21.8%               0    0.0%
attention     28,348,416   25.9%  38,654,705,664   40.0%
feedforward   56,669,184   51.8%  57,982,058,496   60.0%
norms             36,864    0.0%               0    0.0%
head             590,592    0.5%       1,179,648    0.0%
total        109,482,240  100.0%  96,637,943,808  100.0%

23,835,648 parameters in lookup tables, 85,646,592 elsewhere

memory in float32 at length 512, batch 1
parameters                        417.6 MiB
key-value cache                         0 B
activations, training (estimate)  289.5 MiB
"""


def show(capsys, *words):
    assert main(["show", *words]) == 0
    return capsys.readouterr().out


def test_bert(capsys):
    assert show(capsys, "bert") == BERT


@pytest.mark.parametrize("name", recipes())
def test_every_recipe(name, capsys):
    out = show(capsys, name)
    assert out.startswith("Model(\n")
    assert out.count("(") == out.count(")")


def test_settings_may_stand_anywhere(capsys):
    out = show(capsys, "bert", "depth=2", "--length", "16", "stack.block.*.place=pre")
    assert "(0-1): 2 x Block(" in out
    assert "place=post" not in out
    assert "at length 16, batch 1" in out


def test_parameters_of_a_part_are_shown(capsys):
    out = show(capsys, "t5", "depth=1")
    assert "(0): Block(" in out
    assert "(table): Parameter(32, 8)" in out
    assert "encoder.attention" in out


def test_json_can_be_shown_again(capsys, tmp_path):
    written = show(capsys, "gpt2", "depth=3", "--json")
    assert from_json(written) == recipe("gpt2", depth=3)
    file = tmp_path / "mine.json"
    file.write_text(written)
    assert show(capsys, str(file)) == show(capsys, "gpt2", "depth=3")
    assert from_json(show(capsys, str(file), "stack.depth=4", "--json")).stack.depth == 4


def test_flat_lists_keys_and_shapes(capsys):
    lines = show(capsys, "vit", "depth=1", "--flat").splitlines()
    assert lines[0].split() == ["embed.cls", "768"]
    assert lines[1].split() == ["embed.patch.weight", "768", "×", "768"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (to_json(recipe("bert").stack), "describes a Stack, not a Model"),
        ("5", "describes a int, not a Model"),
        ("{", "not JSON"),
        ('{"is": "Modell"}', "did you mean 'Model'"),
        ('{"is": "Model"}', "Model needs a value for dim"),
        ('{"dim": 3}', "needs the key 'is'"),
    ],
)
def test_a_file_that_is_no_model(text, message, capsys, tmp_path):
    file = tmp_path / "spec.json"
    file.write_text(text)
    assert main(["show", str(file)]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_no_text(capsys, tmp_path):
    (tmp_path / "spec.json").write_bytes(b"\xff\xfe\x00")
    assert main(["show", str(tmp_path / "spec.json")]) == 2
    assert "UTF-8" in capsys.readouterr().err
    assert main(["show", str(tmp_path / "folder.json")]) == 2


def test_text():
    assert columns([("a", "1"), ("long", "1,000")]) == ["a         1", "long  1,000"]
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 30: "3.0 GiB", 5 << 50: "5,120.0 TiB"}
    assert {n: in_bytes(n) for n in sizes} == sizes


def test_a_model_s_folder_is_shown_as_it_is(capsys, tmp_path):
    spec = recipe("gpt2", dim=16, depth=2, heads=2, vocab=20, length=8)
    anyformer.build(spec).save_pretrained(tmp_path / "own")
    assert from_json(show(capsys, str(tmp_path / "own"), "--json")) == spec
    deeper = show(capsys, str(tmp_path / "own"), "--json", "stack.depth=3")
    assert from_json(deeper).stack.depth == 3
    assert main(["show", str(tmp_path)]) == 2  # a folder without a model
    assert "has no anyformer.json" in capsys.readouterr().err
