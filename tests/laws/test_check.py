"""The law machine: what is broken is said in words, on models of any size."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from anyformer import build, recipe
from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.laws import LAWS, check
from anyformer.laws.check import broken
from anyformer.laws.crossed import nodes
from anyformer.laws.keep import again, write
from anyformer.laws.many import plainest, spec_of, try_laws
from anyformer.laws.reduce import reduced
from anyformer.laws.shrink import shrunk, size
from anyformer.laws.specs import sample, tells_apart
from anyformer.laws.training import paths_of_dropout
from anyformer.model.count import count
from anyformer.ops import mask
from anyformer.recipes import recipes
from tests.laws.test_mutations import plain, sees_the_next


def test_a_model_that_keeps_the_laws_has_no_findings():
    before = torch.random.get_rng_state()
    assert check(recipe("gpt2"), ["1 causal", "2 cache", "9 flops"]) == []
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_finding_says_law_amount_input_and_hint(monkeypatch):
    sees_the_next(monkeypatch)
    (found,) = check(recipe("gpt2", **{"stack.block.0.branch.backend": "eager"}), ["1 causal"])
    assert found.off is not None and found.limit is not None and found.off > found.limit
    for said in (
        "law 1 causal is broken",
        "no position sees a later one",
        "off by",
        "seed",
        "hint",
    ):
        assert said in str(found)


def test_a_part_that_raises_breaks_the_law(monkeypatch):
    monkeypatch.setattr(mask.Causal, "__call__", lambda *_: 1 / 0)
    found = broken("1 causal", plain(backend="eager"), (0,))
    assert found is not None and found.what.startswith("ZeroDivisionError")


def test_unknown_laws_are_named():
    with pytest.raises(SpecError, match="did you mean '1 causal'"):
        check(recipe("gpt2"), ["1 cusal"])


def test_a_built_model_is_tried_by_its_spec_and_one_changed_by_hand_is_refused():
    model = build(plain())
    assert check(model, ["1 causal"]) == []
    model.stack.blocks[0][0].branch = nn.Identity()
    with pytest.raises(SpecError, match=r"stack\.blocks\.0\.0\.branch was replaced by hand"):
        check(model, ["1 causal"])


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_can_be_made_small_and_keeps_what_it_is_made_of(name):
    whole = recipe(name)
    found = reduced(whole)
    assert not S.problems(found.spec)
    assert count(found.spec, 12).parameters < 50_000
    assert any(note.startswith("made smaller") for note in found.notes)
    kinds = lambda spec: {type(node) for path, node in nodes(spec) if not path.startswith("head")}
    assert kinds(found.spec) == kinds(whole)


def test_heads_that_the_laws_cannot_read_are_left_out_and_said():
    found = reduced(recipe("electra"))
    assert found.spec.head is None and "Detect left out" in found.notes[0]


def test_specs_are_shrunk_to_what_matters():
    def breaks(spec: S.Model) -> bool:
        return any(isinstance(node, S.SoftCap) for _, node in nodes(spec))

    start = next(spec for spec in map(sample, range(100)) if breaks(spec))
    found = shrunk(start, breaks)
    assert breaks(found) and not S.problems(found)
    assert size(found) < size(start) / 2


def test_what_breaks_is_found_shrunk_kept_and_tried_again(tmp_path, monkeypatch):
    sees_the_next(monkeypatch)
    monkeypatch.setattr(
        "anyformer.laws.many.spec_of", lambda seed: (plain(gate="glu", **EAGER), "drawn")
    )
    tally = try_laws(["1 causal"], range(2))
    assert tally.tried["1 causal"] == 2 and tally.found
    found = plainest(tally.found[0])
    assert "gate" not in {change.path for change in S.diff(found.spec, tally.found[0].spec)}
    assert S.get(found.spec, "stack.block.0.branch.gate") == "no"
    path = write(found, tmp_path)
    assert again(path) == found
    monkeypatch.undo()
    assert again(path) is None
    path.write_text('{"law": "1 causal"}')
    with pytest.raises(SpecError, match="law, seed, spec"):
        again(path)


EAGER = {"backend": "eager"}


def test_numbers_that_float64_does_not_determine_say_nothing(monkeypatch):
    """Seed 82616: turns of a squared ReLU without a norm, gradients of 1e13."""
    tally = try_laws(["5 backends", "6 padded gradients"], [82616])
    assert tally.found == [] and set(tally.unsure) == {82616}
    assert "float64 does not determine, which says nothing (seeds 82616)" in tally.table([])[-1]
    monkeypatch.setattr("anyformer.laws.cases.NUDGE", 0.0)
    found = broken("5 backends", spec_of(82616)[0], (82616,))
    assert found is not None


def test_numbers_that_outgrow_float64_say_nothing(monkeypatch):
    """Seed 701531: five turns of a gated, squared ReLU without a norm."""
    tally = try_laws(["5 backends", "8 one position", "recursion: rounds"], [701531])
    assert tally.found == [] and tally.unsure == [701531] * 3
    monkeypatch.setattr("anyformer.laws.cases.CALMER", 1.0)
    found = broken("5 backends", spec_of(701531)[0], (701531,))
    assert found is not None and "not finite" in found.what


def test_a_law_that_is_broken_in_a_wild_model_is_still_found(monkeypatch):
    """What a next token moves is far more than what the last digits of the weights move."""
    sees_the_next(monkeypatch)
    wild = S.override(spec_of(82616)[0], "stack.block.1.branch.backend", "eager")
    assert broken("1 causal", wild, (82616,)) is not None


def test_every_law_is_said_in_words():
    assert all(law.says and law.hint for law in LAWS.values())
    assert len({law.says for law in LAWS.values()}) == len(LAWS)


def test_the_page_names_every_law():
    page = (Path(__file__).parents[2] / "docs" / "laws.md").read_text()
    listed = page.partition("<!-- laws -->\n")[2].partition("\n\n")[0].splitlines()
    assert listed == [f"| {name} | {law.says} |" for name, law in LAWS.items()]


def test_drawn_tokens_are_more_than_a_sign_each():
    """Seed 100496: bands of one channel behind a norm made keys equal, and top-k luck."""
    assert all(tells_apart(sample(seed)) for seed in range(200))
    assert tells_apart(spec_of(100496)[0]) and spec_of(100496)[0].embed.source.cutoffs
    narrow = S.override(spec_of(100496)[0], "embed.dim", 4)
    assert not S.problems(narrow) and not tells_apart(narrow)


def test_a_convolution_behind_a_block_that_is_asked_anew_is_idle():
    """Seed 701009: head.enhanced over one block drops what stands behind it, as such files do."""
    spec = spec_of(701009)[0]
    assert "stack.convolution.dropout" not in paths_of_dropout(spec)
    assert "stack.convolution.dropout" in paths_of_dropout(S.override(spec, "stack.depth", 2))
    assert try_laws(["training: dropout"], [701009]).found == []
