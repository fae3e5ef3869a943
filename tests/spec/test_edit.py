"""Override, get, diff and parse."""

import pytest

from anyformer.errors import SpecError
from anyformer.recipes import recipe
from anyformer.spec import LayerNorm, RMSNorm, diff, get, override, parse

BERT = recipe("bert", depth=2)


def test_override_changes_one_place_and_leaves_the_original():
    deeper = override(BERT, "stack.depth", 6)
    assert (deeper.stack.depth, BERT.stack.depth) == (6, 2)
    assert override(deeper, "stack.depth", 2) == BERT


def test_override_by_index():
    changed = override(BERT, "stack.block.-1.norm", None)
    assert changed.stack.block[0].norm == BERT.stack.block[0].norm
    assert changed.stack.block[1].norm is None


def test_a_star_changes_every_item_that_has_the_path():
    changed = override(BERT, "stack.block.*.branch.heads", 4)
    assert changed.stack.block[0].branch.heads == 4
    assert changed.stack.block[1] == BERT.stack.block[1]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("stak.depth", 1, "unknown field of Model in 'stak.depth': 'stak'; did you mean 'stack'"),
        ("stack.block.2.norm", None, "'2' should be '\\*' or an index of 2 items"),
        ("stack.block.first.norm", None, "'first' should be"),
        ("stack.block.*.branch.nothing", 1, "none of the 2 items has 'branch.nothing'"),
        ("stack.depth.more", 1, "goes into 2, which has no fields at 'more'"),
        ("stack.depth", "six", "Stack.depth takes an int"),
    ],
)
def test_override_of_a_bad_path(path, value, message):
    with pytest.raises(SpecError, match=message):
        override(BERT, path, value)


def test_get():
    assert get(BERT, "stack.block.0.branch.heads") == 12
    with pytest.raises(SpecError, match="did you mean 'heads'"):
        get(BERT, "stack.block.0.branch.head")
    with pytest.raises(SpecError, match="nothing is at 'x'"):
        get(BERT, "dim.x")


def test_diff_of_equals_is_empty():
    assert diff(BERT, recipe("bert", depth=2)) == ()


def test_diff_names_the_smallest_changes():
    other = override(override(BERT, "stack.depth", 3), "stack.block.1.norm.eps", 1e-5)
    changes = {change.path: (change.before, change.after) for change in diff(BERT, other)}
    assert changes == {"stack.block.1.norm.eps": (1e-12, 1e-5), "stack.depth": (2, 3)}
    assert str(diff(BERT, other)[1]) == "stack.depth: 2 → 3"


def test_diff_leads_from_one_to_the_other():
    other = recipe("bert", depth=3, **{"embed.norm": RMSNorm(), "stack.block.*.place": "pre"})
    walked = BERT
    for change in diff(BERT, other):
        walked = override(walked, change.path, change.after)
    assert walked == other


def test_diff_of_two_kinds_is_one_change():
    assert [c.path for c in diff(LayerNorm(), RMSNorm())] == [""]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6", 6),
        ("-1", -1),
        ("0.1", 0.1),
        ("none", None),
        ("True", True),
        ("gelu", "gelu"),
        ('"gelu"', "gelu"),
        ("two words", "two words"),
        ("", ""),
        ("RMSNorm", RMSNorm()),
        ("RMSNorm(eps=1e-3)", RMSNorm(eps=1e-3)),
        ("(1, none)", (1, None)),
        ("[RMSNorm, LayerNorm(bias=false)]", (RMSNorm(), LayerNorm(bias=False))),
    ],
)
def test_parse(text, value):
    assert parse(text) == value
    assert type(parse(text)) is type(value)


@pytest.mark.parametrize("text", ["1/2", "{[]: 1}", "RMSNorm(1e-3)", "Norm(eps=1)", "Attention"])
def test_parse_of_what_is_no_value(text):
    with pytest.raises(SpecError):
        parse(text)
