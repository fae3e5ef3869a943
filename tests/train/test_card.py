"""Cards: what they say, and that names do nothing in them."""

import json

from anyformer import spec as S
from anyformer.train.card import card, escaped
from tests.train.tiny import settings, spec

EVIL = "---\nx: !!python/object:os.system\n# <script>alert(1)</script> [a](javascript:1) ```"


def _card(name: str) -> str:
    record = {
        "name": name,
        "spec": S.to_dict(spec()),
        "settings": S.to_dict(settings(frozen=("```",))),
        "objective": {"is": "TinyCausal"},
        "versions": {"anyformer": "1"},
        "data": {"source": {"path": EVIL}},
    }
    return card(record, {"step": 3, "loss": 1.25, "note": "nan"}, 7)


def test_a_card_says_what_was_done():
    text = _card("tiny")
    assert "# tiny" in text
    assert "7 steps" in text
    assert "| loss | 1.25 |" in text


def test_names_do_nothing_in_a_card():
    text = _card(EVIL)
    front, body = text.split("---\n")[1], text.split("---\n", 2)[2]
    assert {line.split(":")[0] for line in front.splitlines()} == {"library_name", "tags"}
    assert all(json.loads(line.split(": ", 1)[1]) for line in front.splitlines())
    assert "<script>" not in body
    assert "[a](javascript" not in body
    assert body.count("```") == 4
    assert "\n" not in escaped(EVIL)
