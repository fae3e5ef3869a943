"""Notebooks: run without Jupyter, and shown as pages.

`python -m docs.site.notebooks` runs every notebook of docs/notebooks/ and writes what its cells
print into it; `python -m docs.site.notebooks generate` runs one.
"""

from __future__ import annotations

import ast
import io
import json
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[1] / "notebooks"
INDEX = """\
# Notebooks

Small ones, that run on a CPU in seconds to a minute. What they print is what they printed here;
tests run them. Each page has the file to download.

{rows}

```{{toctree}}
:hidden:

{names}
```
"""

Cell = dict[str, Any]  # as nbformat has it


def notebooks() -> list[Path]:
    """All notebooks."""
    return sorted(HOME.glob("*.ipynb"))


def read(file: Path) -> dict[str, Any]:
    """A notebook as data."""
    return json.loads(file.read_text(encoding="utf-8"))


def run(book: dict[str, Any]) -> dict[str, Any]:
    """The same notebook with the outputs of a fresh run; what a cell raises is raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            cells.append(cell)
            continue
        count += 1
        outputs = _outputs(source(cell), names, count)
        cells.append({**cell, "execution_count": count, "outputs": outputs})
    return {**book, "cells": cells}


def source(cell: Cell) -> str:
    """What a cell says."""
    return "".join(cell["source"])


def printed(cell: Cell) -> str:
    """What a cell printed, its last value included."""
    found = [o["text"] if "text" in o else o["data"]["text/plain"] for o in cell["outputs"]]
    return "\n".join("".join(lines).rstrip("\n") for lines in found)


def _outputs(code: str, names: dict[str, Any], count: int) -> list[Cell]:
    """Run a cell; what it prints, and the value of its last line if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said, value = io.StringIO(), None
    with redirect_stdout(said):
        exec(compile(tree, f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[Cell] = []
    if said.getvalue():
        lines = said.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        result = {"data": data, "execution_count": count, "metadata": {}}
        outputs.append({**result, "output_type": "execute_result"})
    return outputs


def save(file: Path, book: dict[str, Any]) -> None:
    """Write a notebook as Jupyter does."""
    text = json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")


def page(file: Path) -> str:
    """A notebook in Markdown: text, code and what it printed."""
    parts = [_shown(cell) for cell in read(file)["cells"]]
    parts.insert(1, f"[The notebook as a file](beside:{file.name})")
    return "\n\n".join(parts) + "\n"


def _shown(cell: Cell) -> str:
    if cell["cell_type"] == "markdown":
        return source(cell)
    text = printed(cell)
    return f"```python\n{source(cell)}\n```" + (f"\n\n```text\n{text}\n```" if text else "")


def title(file: Path) -> str:
    """The heading of a notebook."""
    return source(read(file)["cells"][0]).splitlines()[0].removeprefix("# ")


def write(pages: Path, beside: Path) -> None:
    """Write the page of each notebook, their index, and the files to download."""
    for folder in (pages, beside):
        folder.mkdir(parents=True, exist_ok=True)
    for file in notebooks():
        (pages / f"{file.stem}.md").write_text(page(file), encoding="utf-8")
        shutil.copyfile(file, beside / file.name)
    rows = "\n".join(f"- [{title(file)}]({file.stem}.md)" for file in notebooks())
    names = "\n".join(file.stem for file in notebooks())
    (pages / "index.md").write_text(INDEX.format(rows=rows, names=names), encoding="utf-8")


def main(names: list[str]) -> int:
    """Run the notebooks that are named, or all, and keep what they print."""
    for file in notebooks():
        if not names or file.stem in names:
            save(file, run(read(file)))
            print(file.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
