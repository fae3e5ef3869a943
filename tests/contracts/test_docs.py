"""The Python in the README and the docs runs as it stands."""

import pathlib
import re

import pytest

from anyformer.parts import PARTS
from anyformer.spec import KINDS

ROOT = pathlib.Path(__file__).parents[2]
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
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert blocks, f"{page.name} shows no code"
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
