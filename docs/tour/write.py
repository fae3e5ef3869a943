"""Pages of the tour as files for Sphinx: one per source file, one per chapter, and the index."""

from __future__ import annotations

from pathlib import Path

from docs.tour.language import ENGLISH
from docs.tour.page import pages
from docs.tour.path import Chapter, chapters, main_path
from docs.tour.source import ROOT, name_of
from docs.tour.translated import escaped, page
from docs.tour.words import words

INDEX = """\
---
hide-toc: true
---
# The tour

Every file of the core beside its notes: the model as data (`spec`), the family tree (`recipes`),
tensor functions (`ops`), modules (`parts`), the model made of them (`model`), and what it is
trained for (`objectives`). Notes are left, code is right; on a phone, notes come first. Each name
in the code leads to its definition. All of it comes from the source itself: {files} files,
{sections} sections.

The path below has {pages} pages and takes about {hours} hours. Read it from the top, or begin with
what you came for: [Transformer-XL](recipes/xl.md), [T5's bias](recipes/t5.md),
[DeBERTa](recipes/deberta.md), [entmax](ops/weigh.md), [recursive layers](recipes/recursive.md). The
rest is listed beside the path, to look things up in. [The family tree](tree.md) is a picture of all
models: what each has, and what it changed. [The main path]({main}.md) is the shortest way through;
it is also there in 中文, 日本語 and සිංහල.

{chapters}

```{{toctree}}
:hidden:

{names}
```
"""

CHAPTER = """\
---
hide-toc: true
---
# {title}

{text}

{table}

```{{toctree}}
:hidden:

{names}
```
"""


def write(folder: Path) -> None:
    """Write all pages of the tour."""
    for name in pages():
        file = folder / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(name, words(ENGLISH, name)), encoding="utf-8")
    for chapter in chapters():
        (folder / f"{chapter.name}.md").write_text(_chapter(chapter), encoding="utf-8")
    (folder / "index.md").write_text(_index(), encoding="utf-8")


def _chapter(chapter: Chapter) -> str:
    names = "\n".join((*chapter.pages, *chapter.beside))
    text = {"title": chapter.title, "text": chapter.text, "names": names}
    return CHAPTER.format(table=_table(chapter), **text)


def _table(chapter: Chapter) -> str:
    """The pages of a chapter: what each is, and how long it takes."""
    rows = [_line(name, f"{pages()[name].minutes}&nbsp;min") for name in chapter.pages]
    rows += [_line(name, "beside") for name in chapter.beside]
    return "\n".join(["| page | about | time |", "|---|---|---|", *rows])


def _line(name: str, time: str) -> str:
    found = pages()[name]
    about = found.rows[0].note.partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")
    return f"| [{escaped(found.title)}]({name}.md) | {about} | {time} |"


def _index() -> str:
    there, all_chapters = pages(), chapters()
    total = sum(there[name].minutes for c in all_chapters for name in c.pages)
    sections = sum(row.section for page in there.values() for row in page.rows)
    blocks = []
    for chapter in all_chapters:
        time = sum(there[name].minutes for name in chapter.pages)
        blocks.append(
            f"## [{chapter.title}]({chapter.name}.md)\n\n{chapter.text} *{time} minutes.*"
        )
        listed = [
            f"1. [{escaped(there[n].title)}]({n}.md), {there[n].minutes} min" for n in chapter.pages
        ]
        blocks.append("\n".join(listed))
    return INDEX.format(
        files=len(there),
        sections=sections,
        pages=sum(len(c.pages) for c in all_chapters),
        hours=round(total / 60),
        chapters="\n\n".join(blocks),
        main=main_path().name,
        names="\n".join((*(c.name for c in all_chapters), main_path().name)),
    )


def places() -> dict[str, str]:
    """Source files and their pages, as links of other pages name them."""
    found = {
        page.source.file.relative_to(ROOT).as_posix(): f"tour/{name_of(page.source.file)}.md"
        for page in pages().values()
    }
    made = {f"docs/tour/{c.name}.md": f"tour/{c.name}.md" for c in chapters()}
    return found | made | {f"docs/tour/{n}.md": f"tour/{n}.md" for n in ("index", "tree", "main")}
