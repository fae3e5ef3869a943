"""The fault catalogue, its tests and its page name the same cases."""

import ast
import re
from pathlib import Path

from tests.faults.catalogue import CASES, GROUPS
from tests.faults.table import case_of, on_the_page

HOME = Path(__file__).resolve().parents[1] / "faults"


def cases_with_tests() -> set[str]:
    """The cases that have tests, by the names of functions and of parameters."""
    found: set[str | None] = set()
    for file in HOME.glob("test_*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                found.add(case_of(f"::{node.name}"))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(case_of(f"[{node.value}") if re.match(r"u\d+ ", node.value) else None)
    return {name for name in found if name is not None}


def test_every_case_has_a_test_and_every_test_a_case():
    assert cases_with_tests() == CASES.keys()


def test_the_page_has_every_case_and_no_other():
    assert on_the_page() == CASES.keys()


def test_the_reference_is_covered():
    numbers = sorted(int(name[1:]) for name in CASES if name[0] in "abcdefghi")
    assert numbers == list(range(1, 93))
    assert {name[0] for name in CASES} == GROUPS.keys()
