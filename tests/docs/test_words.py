"""Translations: what they must keep, what the check reports, and the pages made of them."""

import re

import pytest

from docs.site.languages import tag
from docs.tour import check, coverage
from docs.tour.glossary import breaches
from docs.tour.language import between, languages, others, switcher
from docs.tour.markdown import html
from docs.tour.notes import NoteError
from docs.tour.page import body, pages
from docs.tour.path import main_path
from docs.tour.protect import blocks, differences, emptied, filled
from docs.tour.source import hashed
from docs.tour.translated import main_page
from docs.tour.words import WORDS, parsed, units_of, words

ENGLISH = """Softmax of `x` is $p_j$, see [there](ops/weigh) (1901.02860).

$$
a \\quad \\text{otherwise}
$$

```svg
<svg aria-label="A picture"><text x="1">by key</text></svg>
```
"""


# ---------------------------------------------------------------- coverage


def test_the_main_path_is_whole_in_three_languages():
    assert others() == ["zh", "ja", "si"]
    assert coverage.faults() == []
    for code in others():
        done, total = coverage.counts(code)
        assert done == total >= 90
    assert "recipes/xl" in main_path().pages
    assert set(main_path().pages) <= set(pages())


@pytest.fixture
def home(tmp_path):
    """A folder with one good catalogue, whose text a test may spoil."""
    (tmp_path / "zh" / "ops").mkdir(parents=True)
    there = WORDS / "zh" / "ops" / "weigh.md"
    (tmp_path / "zh" / "ops" / "weigh.md").write_text(there.read_text(encoding="utf-8"))
    return tmp_path


def spoiled(home, old: str, new: str) -> list[str]:
    file = home / "zh" / "ops" / "weigh.md"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    return [line for line in coverage.faults(home) if line.startswith("zh/ops/weigh")]


def test_a_catalogue_that_is_right_has_no_fault_and_pages_without_one_are_missing(home):
    found = coverage.faults(home)
    assert not [line for line in found if "zh/ops/weigh" in line]
    assert "ja/recipes/xl: (module) is missing" in found
    assert coverage.counts("zh", home)[0] == len(units_of("ops/weigh"))


def test_a_stale_key_is_reported(home, capsys, monkeypatch):
    digest = units_of("ops/weigh")["softmax"][0]
    found = spoiled(home, f"## softmax {digest}", "## softmax 0123456789ab")
    assert found == [
        f"zh/ops/weigh: softmax is stale: made from 0123456789ab, the English is {digest} now"
    ]
    monkeypatch.setattr(coverage.faults, "__defaults__", (home,))
    assert check.main(["--languages"]) == 1
    assert found[0] in capsys.readouterr().out
    assert "softmax" not in words("zh", "ops/weigh", home).texts  # its English is shown


def test_an_unknown_key_page_or_language_is_reported(home):
    found = spoiled(home, "## _ranks ", "## _rangs ")
    assert "zh/ops/weigh: _ranks is missing" in found
    assert "zh/ops/weigh: _rangs is unknown: the page has no such note" in found
    (home / "zh" / "ops" / "nothing.md").write_text("")
    (home / "xx").mkdir()
    (home / "xx" / "main.md").write_text("")
    assert {"zh/ops/nothing.md: there is no such page"} < set(coverage.faults(home))
    assert "xx/main.md: no language of languages.toml" in coverage.faults(home)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("`threshold`", "阈值", "lacks 'code threshold'"),
        ("$-\\log n$", "$\\log n$", "has 'math \\\\log n', which the English has not"),
        ("{{2}}", "", "lacks 'math p_j"),
        ("{{2}}", "{{9}}", "can't be filled: there is no block 9: the English text has 2"),
        ("（1909.00015）", "", "lacks 'number 1909.00015'"),
        ("### 一个家族\n", "", "lacks 'heading'"),
        ("1.5-entmax", "1.5 阶最大熵", "lacks the term 'entmax'"),
    ],
)
def test_what_a_translation_lost_is_reported(home, old, new, said):
    assert any(said in line for line in spoiled(home, old, new))


def test_a_term_is_written_in_one_way():
    assert breaches("Two tokens.", "トークン二つ。", "ja") == []
    assert breaches("Two tokens.", "単語二つ。", "ja") == ["lacks 'トークン' for 'token'"]


def test_transformer_xl_is_never_a_number():
    assert breaches("Transformer-XL", "Transformer-XL", "zh") == []
    assert any("'Transformer 40'" in line for line in breaches("x", "Transformer 40 模型", "zh"))
    assert breaches("Transformer-XL", "Transformer-40", "ja")[0].startswith("lacks the term")
    for file in WORDS.rglob("*.md"):
        assert not re.search(r"(?i)transformer[\s-]*[0-9]", file.read_text(encoding="utf-8")), file


# --------------------------------------------------------------- catalogues


def test_blocks_stand_for_themselves_and_their_words_are_translated():
    assert len(blocks(ENGLISH)) == 2
    assert emptied(ENGLISH).endswith("{{1}}\n\n{{2}}\n")
    assert filled(emptied(ENGLISH), ENGLISH) == ENGLISH
    labels = "```labels 2\nby key -> 按键\nA picture -> 一幅图\n```"
    text = filled(emptied(ENGLISH).replace("{{2}}", labels), ENGLISH)
    assert '<text x="1">按键</text>' in text and 'aria-label="一幅图"' in text
    assert differences(ENGLISH, text) == []
    with pytest.raises(NoteError, match="nothing in the block is called 'by keys'"):
        filled("```labels 2\nby keys -> 按键\n```", ENGLISH)


def test_a_catalogue_that_cannot_be_read_says_why():
    assert parsed("## (module) 0123456789ab\n\nText.\n")[""].text == "Text."
    with pytest.raises(NoteError, match="should be a key and a hash"):
        parsed("## softmax\n\nText.\n", "zh/ops/weigh")
    with pytest.raises(NoteError, match="two sections are called 'a'"):
        parsed("## a 0123456789ab\n\n1\n\n## a 0123456789ac\n\n2\n")


def test_a_template_has_what_is_lacking(home, capsys):
    assert coverage.template("zh", "ops/weigh", home) == ""
    assert check.main(["--template", "zh", "ops/mask"]) == 0
    said = capsys.readouterr().out
    assert f"## (module) {units_of('ops/mask')[''][0]}\n" in said
    assert len(parsed(said)) == len(units_of("ops/mask"))
    for wrong in (["xx", "ops/mask"], ["zh", "ops/masks"]):
        with pytest.raises(SystemExit):
            check.main(["--template", *wrong])


# -------------------------------------------------------------------- pages


def test_a_page_in_another_language(home):
    text = body(pages()["ops/weigh"], words("zh", "ops/weigh"))
    assert "从分数到权重，沿最后一个轴逐行进行" in text
    assert 'lang="en"' not in re.sub(r"<nav.*?</nav>", "", text)
    assert 'href="../../../tour/ops/weigh.html" lang="en" hreflang="en"' in text
    assert 'href="../../../ja/tour/ops/weigh.html" lang="ja"' in text
    assert "下一页" in text and 'href="relative.html"' in text
    assert text.count('class="tour-code') == body(pages()["ops/weigh"]).count('class="tour-code')


def test_a_page_whose_translation_cannot_be_filled_says_which(home):
    spoiled(home, "{{2}}", "{{9}}")
    with pytest.raises(NoteError, match=r"zh/ops/weigh, \(module\): there is no block 9"):
        words("zh", "ops/weigh", home)


def test_english_is_shown_where_a_translation_is_missing(home):
    spoiled(home, "## sigmoid ", "## sigmoids ")
    text = body(pages()["ops/weigh"], words("zh", "ops/weigh", home))
    missing = re.findall(r'data-key="([^"]*)" data-digest="\w+" lang="en"', text)
    assert missing == ["sigmoid"]
    assert "Each score by itself" in text


def test_links_of_a_translated_page_lead_to_its_language_or_to_english():
    assert between("ops/weigh", "recipes/xl", "zh") == "../recipes/xl.html"
    assert between("ops/weigh", "ops/mask", "zh") == "../../../tour/ops/mask.html"
    assert between("ops/weigh", "ops/mask") == "mask.html"
    assert switcher("ops/mask", languages()["en"]) == ""
    assert tag("zh/tour/recipes/xl") == "zh-Hans" and tag("tour/recipes/xl") == "en"


def test_the_page_of_the_main_path():
    text = main_page("ja")
    assert text.startswith("---\nhide-toc: true\n---\n# 主な道筋\n")
    assert "1. [距離ごとの三つの表](ops/relative.md)" in text
    assert "/si/tour/main" in main_page("en")
    assert units_of("main")["(title)"][0] == hashed(main_path().title)


def test_lines_of_chinese_are_joined_without_a_space():
    assert "分数权重" in html("分数\n权重")
    assert "分数<em>权重</em>" in html("分数\n*权重*")
    assert "a\nb" in html("a\nb")
    assert "分数\nb" in html("分数\nb")
