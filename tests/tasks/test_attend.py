"""Attention pictures: the weights in a page are the model's own."""

import base64
import os

import numpy as np
import pytest
import torch

import anyformer
from anyformer import spec as S
from anyformer.checkpoint import save
from anyformer.errors import AnyformerError, InputError
from anyformer.laws.specs import sample
from anyformer.spec.walk import attentions
from anyformer.tasks.attention import inputs, page
from anyformer.tasks.attention.maps import spans
from tests.tasks.attending import OWN, changed, folder, read, said, tiny, vit

IDS = [3, 5, 8, 4]


def same(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs[0].numpy(), atol=1 / 65535)


@pytest.mark.parametrize("name", ["encoder", "decoder"])
@torch.no_grad()
def test_the_page_has_the_models_weights(name):
    model = tiny(name)
    data, found = read(anyformer.attend(model, IDS).html())
    same(found, model(torch.tensor([IDS]), output_attentions=True).attentions)
    assert [m["name"] for m in data["maps"]] == ["layer 0", "layer 1"]
    assert data["labels"] == [["3", "5", "8", "4"]]
    for w in found:
        np.testing.assert_allclose(w.sum(-1), 1.0, atol=1e-4)
    if name == "decoder":
        assert not np.triu(found[0][0], 1).any()


@torch.no_grad()
def test_an_encoder_decoder_has_three_kinds():
    model = tiny("encoder-decoder")
    seen = anyformer.attend(model, IDS, target=[1, 2, 3])
    out = model(
        torch.tensor([IDS]), decoder_input_ids=torch.tensor([[1, 2, 3]]), output_attentions=True
    )
    kinds = [m.kind for m in seen.maps]
    assert kinds[:2] == ["encoder self-attention"] * 2
    assert kinds[2:] == ["decoder self-attention", "cross-attention"] * 2
    for ours, theirs in zip(seen.maps[2:], out.attentions, strict=True):
        assert torch.equal(ours.weights, theirs[0])
    assert seen.maps[0].weights.shape == (2, 4, 4)
    assert seen.maps[3].queries == ("1", "2", "3")
    assert seen.maps[3].keys == ("3", "5", "8", "4")
    for m in seen.maps:
        torch.testing.assert_close(m.weights.sum(-1), torch.ones(m.weights.shape[:2]))


@torch.no_grad()
def test_the_encoders_weights_are_those_of_the_encoder_alone():
    model = tiny("bert2bert")
    seen = anyformer.attend(model, IDS, target=[1, 2])
    assert model.encoder is not None
    alone = model.encoder(torch.tensor([IDS]), output_attentions=True).attentions
    own = [m.weights for m in seen.maps if m.kind.startswith("encoder")]
    assert all(torch.equal(a, b[0]) for a, b in zip(own, alone, strict=True))


def test_a_decoder_without_target_reads_the_models_answer():
    seen = anyformer.attend(tiny("t5", length=None), IDS)
    cross = [m for m in seen.maps if m.kind == "cross-attention"]
    assert cross[0].queries[0] == "0"  # T5's start
    assert 1 < len(cross[0].queries) <= inputs.NEW


def test_shared_blocks_are_shown_by_application():
    model = tiny("recursive-gpt2", depth=4, unique=2)
    names = [m.name for m in anyformer.attend(model, IDS).maps]
    assert names == [
        "layer 0 (block 0, turn 0)",
        "layer 1 (block 0, turn 1)",
        "layer 2 (block 1, turn 0)",
        "layer 3 (block 1, turn 1)",
    ]


def test_rounds_beyond_the_schedule_count_on():
    from anyformer.checkpoint import with_rounds

    loop = {"stack__schedule": S.Shared(unique=1), "stack__loop": S.Loop(step="sinusoidal")}
    model = with_rounds(changed("decoder", **loop), 3)
    seen = anyformer.attend(model, IDS)
    assert [m.layer for m in seen.maps] == list(range(len(seen.maps)))
    assert len({m.name for m in seen.maps}) == len(seen.maps) == 3


def test_memory_keys_and_tokens_are_named():
    model = changed("decoder", **{f"{OWN}.memory": 2})
    m = anyformer.attend(model, IDS).maps[0]
    assert m.keys == ("memory key 0", "memory key 1", "3", "5", "8", "4")
    assert m.weights.shape == (2, 4, 6)
    m = anyformer.attend(changed("encoder", embed__memory=1), IDS).maps[0]
    assert m.keys == m.queries == ("memory token 0", "3", "5", "8", "4")


def test_a_memory_of_zeros_is_named():
    model = changed("decoder", stack__recurrence=3, stack__primed=True)
    m = anyformer.attend(model, IDS).maps[0]
    assert m.keys[:4] == ("position -3", "position -2", "position -1", "3")
    assert m.weights.shape[2] == len(m.keys)


def test_heads_that_talk_are_shown_before_they_are_mixed():
    seen = anyformer.attend(changed("encoder", **{f"{OWN}.talking": "both"}), IDS)
    assert "before their weights are mixed" in seen.html()
    torch.testing.assert_close(seen.maps[0].weights.sum(-1), torch.ones(2, 4))


def test_rows_that_do_not_add_up_are_told_of():
    seen = anyformer.attend(changed("encoder", **{f"{OWN}.weigh": S.Sigmoid(bias=-3.0)}), IDS)
    assert "add up to between 0." in seen.html()


def test_images_are_shown_by_patch():
    seen = anyformer.attend(vit(), image=np.full((20, 20, 3), 51, np.uint8))
    m = seen.maps[0]
    assert (m.side, seen.image.shape) == (3, (3, 12, 12))
    torch.testing.assert_close(seen.image, torch.full((3, 12, 12), 0.2))
    data, _ = read(seen.html())
    assert base64.b64decode(data["image"]["bytes"]) == bytes([51]) * 12 * 12 * 3
    assert m.keys[:3] == ("class token", "patch 0,0", "patch 0,1")
    assert (len(m.keys), m.weights.shape) == (10, (2, 10, 10))


def drawn():
    """Specs of the laws that read tokens or images, and have all that they read."""
    for seed in range(int(os.environ.get("ANYFORMER_CONFIGS", "25"))):
        spec = sample(seed)
        own = spec if spec.encoder is None else spec.encoder
        alone = spec.encoder is None and any(at[-1].cross for at in attentions(spec))
        if not isinstance(own.embed.source, S.Values) and not alone:
            yield spec, own


def test_every_switch_can_be_looked_at():
    count = 0
    for spec, own in drawn():
        side = own.embed.source.image if isinstance(own.embed.source, S.Patches) else 0
        image = np.full((side, side), 9, np.uint8) if side else None
        target = [1, 2, 3] if spec.encoder is not None else None
        model = anyformer.build(spec).eval()
        seen = anyformer.attend(model, None if side else IDS, target=target, image=image)
        assert len({(m.kind, m.name) for m in seen.maps}) == len(seen.maps)
        for m in seen.maps:
            assert m.weights.shape == (len(m.heads), len(m.queries), len(m.keys))
            assert 0 <= float(m.weights.min()) <= float(m.weights.max()) <= 1 + 1e-6
        assert not seen.maps or seen.html()
        count += 1
    assert count > 5


def test_a_model_keeps_its_mode_and_its_hooks():
    model = tiny().train()
    anyformer.attend(model, IDS)
    assert model.training
    assert model(torch.tensor([IDS])).attentions is None
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_some_layers_and_heads_alone():
    seen = anyformer.attend(tiny(), IDS)
    some = seen.only(layers=[1], heads=[1])
    assert [(m.layer, m.heads) for m in some.maps] == [(1, (1,))]
    assert torch.equal(some.maps[0].weights, seen.maps[1].weights[1:])
    assert spans([0, 1, 2, 5]) == "0-2,5"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("model"))


def test_tokens_cannot_become_markup(home):
    text = 'the <script> & </script> " \u202e cat <!--'
    found = anyformer.attend(home, text).html()
    data, _ = read(found)
    assert data["labels"][0] == ["the", "<script>", "&", "</script>", '"', "\ufffd", "cat", "[UNK]"]
    assert found.count("<script") == 2  # the data and the code
    assert found.count("</script>") == 2
    assert "<script> &" in said(found)
    assert "\u202e" not in found


def test_a_page_asks_for_nothing(home):
    found = anyformer.attend(home, "the cat").html()
    assert "default-src 'none'" in found
    links = ("http://www.w3.org/2000/svg",)  # a name, not an address
    assert found.count("http") - found.count("http-equiv") == sum(map(found.count, links))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "there is no text to look at"),
        ({"text": ""}, "there is no text to look at"),
        ({"text": "  "}, "has no token"),
        ({"text": "cat " * 129}, "has 129 tokens.*--first 128"),
        ({"text": "cat", "first": 0}, "take the first token at least"),
        ({"text": "cat", "target": "dog"}, "leave the target out"),
        ({"text": "cat", "image": "cat.png"}, "leave the image out"),
        ({"text": [99]}, "outside 0..9"),
    ],
)
def test_bad_input_is_named(home, given, message):
    with pytest.raises(InputError, match=message):
        anyformer.attend(home, **given)


def test_other_bad_input():
    with pytest.raises(InputError, match="needs a tokenizer: pass tokenizer="):
        anyformer.attend(tiny(), "cat")
    with pytest.raises(InputError, match="this model reads images"):
        anyformer.attend(vit(), "cat")
    with pytest.raises(InputError, match="give a target"):
        anyformer.attend(tiny("encoder-decoder"), IDS)
    seen = anyformer.attend(tiny(), IDS)
    with pytest.raises(InputError, match="there is no layer 7; this model has 0-1"):
        seen.only(layers=[0, 7])
    with pytest.raises(InputError, match="no head is chosen"):
        seen.only(heads=[])


def test_ids_need_no_tokenizer(tmp_path):
    save(tiny(), tmp_path)
    assert anyformer.attend(tmp_path, IDS).maps[0].keys == ("3", "5", "8", "4")
    with pytest.raises(AnyformerError, match="tokenizer"):
        anyformer.attend(tmp_path, "cat")


def test_first_takes_so_many_tokens(home):
    assert anyformer.attend(home, "cat " * 150, first=5).maps[0].weights.shape == (2, 5, 5)
    assert len(anyformer.attend(home, "cat " * 150, first=140).maps[0].keys) == 140


def test_too_many_weights_are_refused(monkeypatch):
    monkeypatch.setattr(page, "MOST", 63)
    seen = anyformer.attend(tiny(), IDS)
    with pytest.raises(InputError, match=r"64 weights are too many.*--layers"):
        seen.html()
    assert seen.only(layers=[0]).html()


def test_weights_that_are_no_numbers_are_refused():
    model = tiny()
    with torch.no_grad():
        model.stack.blocks[0][0].branch.q.weight.fill_(float("nan"))
    with pytest.raises(InputError, match="self-attention, layer 0, are NaN"):
        anyformer.attend(model, IDS).html()


def test_a_picture_is_a_png(tmp_path):
    pytest.importorskip("matplotlib", reason="a PNG needs matplotlib")
    seen = anyformer.attend(tiny("encoder-decoder"), IDS, target=[1, 2])
    for i, some in enumerate((seen, seen.only([0], [1]))):
        file = some.png(tmp_path / f"{i}.png")
        assert file.read_bytes().startswith(b"\x89PNG")


def test_files_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't write"):
        anyformer.attend(tiny(), IDS).save(tmp_path / "file" / "page.html")
