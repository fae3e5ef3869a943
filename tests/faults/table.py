"""`python -m tests.faults.table` runs the fault catalogue and writes its table into the docs.

`--check` runs nothing: it says whether page and catalogue name the same cases.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.catalogue import CASES, GROUPS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- cases -->", "<!-- /cases -->"
NAME = re.compile(r"::test_([a-z]\d+)_|\[([a-z]\d+) ")
ROW = re.compile(r"^\| ([A-Z]\d+) \|", re.MULTILINE)
WORDS = {"passed": "passes", "failed": "**fails**", "xfailed": "open", "skipped": "needs a GPU"}


def case_of(test: str) -> str | None:
    """The case that a test belongs to, by its name or its parameter."""
    found = NAME.search(test)
    return None if found is None else found[1] or found[2]


class Outcomes:
    """A plugin that counts how the tests of each case ended."""

    def __init__(self) -> None:
        self.found: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once, by the worst that happened to it."""
        name = case_of(report.nodeid)
        if name is None or (report.when != "call" and report.passed):
            return
        outcome = "xfailed" if report.skipped and "xfail" in report.keywords else report.outcome
        self.found.setdefault(name, Counter())[outcome] += 1


def told(counts: Counter[str]) -> str:
    """How a case ended, in words, with the number of its tests."""
    if not counts:
        return "**no test**"
    parts = [f"{WORDS[o]} ({counts[o]})" for o in WORDS if counts[o]]
    return ", ".join(parts)


def table(found: dict[str, Counter[str]]) -> str:
    """The table of all cases, group by group."""
    lines: list[str] = []
    for letter, title in GROUPS.items():
        lines += [f"### {letter.upper()}. {title}", "", "| case | fault | answer | result |"]
        lines += ["|---|---|---|---|"]
        for name, (fault, answer) in CASES.items():
            if name[0] == letter:
                result = told(found.get(name, Counter()))
                lines.append(f"| {name.upper()} | {fault} | {answer} | {result} |")
        lines.append("")
    return "\n".join(lines)


def put(page: str, text: str) -> str:
    """The page with another table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def on_the_page() -> set[str]:
    """The cases that the page names."""
    inside = PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    return {name.lower() for name in ROW.findall(inside)}


def main(words: list[str]) -> int:
    """Run the catalogue and write the page, or look at the page alone."""
    if "--check" in words:
        other = sorted(on_the_page() ^ CASES.keys())
        print(f"not on both: {', '.join(other)}" if other else f"{len(CASES)} cases")
        return bool(other)
    outcomes = Outcomes()
    code = pytest.main(["-q", "-p", "no:cacheprovider", str(ROOT / "tests/faults")], [outcomes])
    PAGE.write_text(put(PAGE.read_text("utf-8"), table(outcomes.found)), "utf-8")
    passing = sum(set(c) == {"passed"} for c in outcomes.found.values())
    print(f"{len(CASES)} cases, of which {passing} pass: {PAGE.relative_to(ROOT)}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
