"""The folder that Sphinx reads: pages of the repository, and pages made from its source."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from docs.site import cli, notebooks, vocabulary
from docs.site.links import moved
from docs.tour import translated, tree, write

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
APART = ("site", "tour", "notebooks")  # folders of docs/ that are code, not pages
MADE = {"cli": cli.page, "spec": vocabulary.page}  # pages of reference/
SINGLE = {  # pages elsewhere in the repository
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/NOTES.md": "performance/notes.md",
    "docs/studies/README.md": "studies/index.md",
}


def places() -> dict[str, str]:
    """Every page and picture: its path in the repository, and its path in the site."""
    found = {}
    for file in sorted(DOCS.rglob("*")):
        inside = file.relative_to(DOCS)
        if inside.parts[0] not in APART and file.suffix in (".md", ".png", ".html"):
            found[f"docs/{inside.as_posix()}"] = inside.as_posix()
    for file in sorted((ROOT / "benchmarks" / "results").glob("*.md")):
        found[file.relative_to(ROOT).as_posix()] = f"performance/results/{file.name}"
    return found | SINGLE


def targets() -> dict[str, str]:
    """Everything that a link may lead to: pages, and those that are made when the site is."""
    made = {f"docs/reference/{name}.md": f"reference/{name}.md" for name in MADE}
    books = ("index", *(file.stem for file in notebooks.notebooks()))
    made |= {f"docs/notebooks/{name}.md": f"notebooks/{name}.md" for name in books}
    return places() | write.places() | made


def stage(source: Path, beside: Path) -> None:
    """Write the pages to `source`, and files that are served as they are to `beside`."""
    for folder in (source, beside):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    write.write(source / "tour")
    translated.write(source)
    notebooks.write(source / "notebooks", beside / "notebooks")
    (source / "tour" / "tree.md").write_text(tree.page(), encoding="utf-8")
    (source / "reference").mkdir()
    for name, make in MADE.items():
        (source / "reference" / f"{name}.md").write_text(make(), encoding="utf-8")
    where, everywhere = places(), targets()
    for theirs, ours in where.items():
        target = (beside if theirs.endswith(".html") else source) / ours
        target.parent.mkdir(parents=True, exist_ok=True)
        if theirs.endswith(".md"):
            text = raised((ROOT / theirs).read_text(encoding="utf-8"))
            target.write_text(moved(text, theirs, everywhere), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / theirs, target)


def raised(text: str) -> str:
    """A page whose first heading is of the second level, with all headings a level higher."""
    first = re.search(r"^#+ ", text, re.M)
    return re.sub(r"^#(#+ )", r"\1", text, flags=re.M) if first and first[0] == "## " else text
