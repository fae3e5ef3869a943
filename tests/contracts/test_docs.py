"""The Python in the README and the docs runs as it stands, and prints what the page shows."""

import contextlib
import io
import pathlib
import re

import pytest

from anyformer.parts import PARTS
from anyformer.spec import KINDS
from tests.docs.pages import same

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n```text\n(.*?)```)?", re.S)  # and what it prints
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture
def known():
    """A page may show a part of one's own, which stays its own."""
    before = {*KINDS}
    yield
    mine = {n: kind for n, kind in KINDS.items() if not kind.__module__.startswith("anyformer.")}
    for name in {*mine} - before:
        PARTS.pop(KINDS.pop(name), None)


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: pathlib.Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks, f"{page.name} shows no code"
    names: dict[str, object] = {}
    for block, shown in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block, page.name, "exec"), names)
        assert not shown or same(shown, said.getvalue()), f"{block}prints:\n{said.getvalue()}"
