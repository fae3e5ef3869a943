"""Notebooks run from top to bottom and print what they hold."""

import re

import pytest

from docs.site import notebooks


def cells(book: dict) -> list[dict]:
    return [cell for cell in book["cells"] if cell["cell_type"] == "code"]


def without_numbers(text: str) -> str:
    return re.sub(r"[0-9][0-9.,e+-]*", "#", text)


@pytest.mark.parametrize("file", notebooks.notebooks(), ids=lambda file: file.stem)
def test_a_notebook_prints_what_it_holds(file):
    kept = notebooks.read(file)
    fresh = notebooks.run(kept)
    assert [cell["execution_count"] for cell in cells(kept)] == [*range(1, len(cells(kept)) + 1)]
    for before, now in zip(cells(kept), cells(fresh), strict=True):
        assert bool(before["outputs"]) == bool(now["outputs"])
        if "varies" not in before["metadata"].get("tags", ()):
            was, found = map(without_numbers, map(notebooks.printed, (before, now)))
            assert was == found


def test_the_main_tasks_have_one():
    found = {file.stem for file in notebooks.notebooks()}
    assert {"compare", "pretrain", "change", "generate"} <= found
    for file in notebooks.notebooks():
        assert notebooks.read(file)["nbformat"] == 4
        assert notebooks.title(file)


def test_a_cell_that_raises_stops_the_run():
    cell = {"cell_type": "code", "source": ["1 / 0"], "metadata": {}, "outputs": []}
    with pytest.raises(ZeroDivisionError):
        notebooks.run({"cells": [cell]})


def test_outputs_are_what_is_printed_and_the_last_value():
    cell = {"cell_type": "code", "source": ["x = 2\n", "print('a')\n", "x + 1"], "metadata": {}}
    [done] = notebooks.run({"cells": [cell]})["cells"]
    assert notebooks.printed(done) == "a\n3"
    assert notebooks._shown(done).endswith("```text\na\n3\n```")
