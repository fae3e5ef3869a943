"""Notes: front matter, sections, Markdown, formulas; the Python in them runs."""

import re
from pathlib import Path

import pytest

from docs.site.mathml import SPACE, FormulaError, joined, mathml
from docs.tour.markdown import html
from docs.tour.notes import NOTES, NoteError, parsed, unknown

TEXT = """---
title: A title
paper: 1901.02860, 1706.03762
---
The beginning.

## first

One.

```python
## no heading
```

## Second.method

Two.
"""


def test_front_matter_and_sections():
    found = parsed(TEXT)
    assert found.title == "A title"
    assert found.papers == ("1901.02860", "1706.03762")
    assert [*found.sections] == ["", "first", "Second.method"]
    assert found.sections[""] == "The beginning."
    assert "## no heading" in found.sections["first"]


def test_what_is_wrong_is_said():
    with pytest.raises(NoteError, match="title, paper"):
        parsed("---\ntitel: A\n---\n")
    with pytest.raises(NoteError, match="two sections are called 'a'"):
        parsed("## a\n\n1\n\n## a\n\n2\n")
    assert unknown(parsed(TEXT), {"first"}) == ["Second.method"]


def test_markdown_with_formulas_papers_and_names():
    shown = html(
        "See `Relative` and (1901.02860): $q_i^\\top k_j$\n\n$$\n\\frac{a}{b}\n$$",
        lambda name: "there.html#L3" if name == "Relative" else None,
    )
    assert '<a href="there.html#L3"><code>Relative</code></a>' in shown
    assert '<a href="https://arxiv.org/abs/1901.02860">1901.02860</a>' in shown
    assert shown.count("<math ") == 2
    assert "<mfrac>" in shown and 'display="block"' in shown
    assert "$" not in re.sub(r'alttext="[^"]*"', "", shown)


def test_markup_of_a_note_is_shown_not_obeyed():
    assert "<script>" not in html("<script>alert(1)</script> a < b")


def test_a_formula_that_is_none_is_an_error():
    with pytest.raises(FormulaError, match="not in pairs"):
        mathml(r"\frac{a")
    with pytest.raises(FormulaError, match="softmix"):
        mathml(r"\softmix(x)")
    assert "<msqrt>" in mathml(r"\{\sqrt{d}\}")


def test_room_around_names_of_functions():
    assert f"<mi>p</mi>{SPACE}<mi>log</mi>{SPACE}<mi>n</mi>" in mathml(r"p \log n")
    assert SPACE not in mathml(r"\log_2(\exp(x))")
    assert 'lspace="0em" rspace="0em">&#x0002F;<' in mathml("1/n")


def test_punctuation_stays_with_its_formula():
    one, held = mathml("n"), '<span class="joined">'
    assert joined(f"<p>({one}, {one} or {one})") == (
        f"<p>{held}({one},</span> {one} or {held}{one})</span>"
    )
    apart = f'<span class="math inline">{one}</span>'
    assert joined(f"{apart}. {apart} is") == f"{held}{apart}.</span> {apart} is"


def runnable() -> list[Path]:
    return [
        f for f in sorted(NOTES.rglob("*.md")) if "```python\n" in f.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("file", runnable(), ids=lambda f: f.stem)
def test_the_python_of_notes_runs(file):
    blocks = re.findall(r"```python\n(.*?)```", file.read_text(encoding="utf-8"), re.S)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, file.name, "exec"), names)
    assert names
