"""Pages of the repository become pages of the site: their links, their headings, the build."""

import html
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.site import vocabulary
from docs.site.cli import help_of
from docs.site.links import LinkError, moved
from docs.site.stage import ROOT, places, raised, targets

PLACES = {"docs/a.md": "a.md", "docs/b/c.md": "b/c.md", "CONTRIBUTING.md": "contributing.md"}


def test_links_move_with_their_pages():
    text = "[c](b/c.md#part) [out](https://x.org/y.md) [here](#part)\n"
    assert moved(text, "docs/a.md", PLACES) == text
    assert moved("[x](../../CONTRIBUTING.md)", "docs/b/c.md", PLACES) == "[x](../contributing.md)"


def test_a_link_to_a_source_file_leads_to_its_page_of_the_tour():
    found = PLACES | {"src/x/y.py": "tour/y.md"}
    assert moved("[y](../src/x/y.py)", "docs/a.md", found) == "[y](tour/y.md)"


def test_links_in_code_stay():
    text = "```md\n[x](nowhere.md)\n```\n"
    assert moved(text, "docs/a.md", PLACES) == text


def test_files_that_are_no_pages_are_served_beside_them():
    found = PLACES | {"docs/report.html": "report.html"}
    assert moved("[r](../report.html)", "docs/b/c.md", found) == "[r](beside:../report.html)"


def test_a_dead_link_is_an_error_that_names_the_page():
    with pytest.raises(LinkError, match=r"docs/a.md links to gone.md"):
        moved("[x](gone.md)", "docs/a.md", PLACES)


def test_no_page_has_a_dead_link():
    found = places()
    everywhere = targets()
    assert len(found) > 40
    for page in found:
        if page.endswith(".md"):
            assert moved((ROOT / page).read_text(encoding="utf-8"), page, everywhere)


def test_a_page_begins_with_a_heading_of_the_first_level():
    assert raised("## A\n\n### B\n") == "# A\n\n## B\n"
    assert raised("# A\n\n## B\n") == "# A\n\n## B\n"


def test_the_reference_of_the_command_is_its_help():
    width = os.environ.get("COLUMNS")
    assert help_of("list").startswith("usage: anyformer list")
    assert os.environ.get("COLUMNS") == width


def test_the_vocabulary_has_every_node_and_the_papers_of_fields():
    assert vocabulary.missing() == []
    text = vocabulary.page()
    assert "### [`XLTable`](../tour/spec/position.md)" in text
    assert "| `clamp` | `Positive \\| None` | `None` | distances beyond it count as it |" in text
    assert "(https://arxiv.org/abs/1901.02860)" in text


def test_dead_links_of_a_built_site_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here">1</a> <a class="x" href="c.html">2</a>')
    (tmp_path / "b.html").write_text('<p id="there"></p><a href="a.html">3</a>')
    assert sorted(dead(tmp_path)) == [("a.html", "b.html#here"), ("a.html", "c.html")]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "docs.build", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "html" / "tour" / "recipes" / "xl.html").read_text(encoding="utf-8")
    assert "<math " in page and "transformer_xl" in page
    chinese = (tmp_path / "html" / "zh/tour/recipes/xl.html").read_text(encoding="utf-8")
    assert 'lang="zh-Hans"' in chinese[:200] and "片段递归" in chinese
    assert 'lang="en"' in page[:200]
    assert (tmp_path / "html" / "searchindex.js").exists()
    assert dead(tmp_path / "html") == []


def dead(site: Path) -> list[tuple[str, str]]:
    """Links inside the built site that lead to no file or to no mark in it."""
    pages = {f: f.read_text(encoding="utf-8") for f in site.rglob("*.html")}
    marks = {f: set(re.findall(r'\bid="([^"]+)"', text)) for f, text in pages.items()}
    found = []
    for file, text in pages.items():
        for address in set(re.findall(r'<a [^>]*href="([^":]*)"', text)):
            path, _, mark = unquote(html.unescape(address)).partition("#")
            to = (file.parent / path).resolve() if path else file
            whole = to.exists() and (not mark or to.suffix != ".html" or mark in marks[to])
            if not whole:
                found.append((file.relative_to(site).as_posix(), address))
    return found
