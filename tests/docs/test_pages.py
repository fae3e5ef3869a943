"""Every block of shell and Python in the documents runs, or is held against the program."""

import re
from pathlib import Path

import pytest

from anyformer.errors import AnyformerError
from anyformer.parts import PARTS
from anyformer.spec import KINDS
from docs.tour.notes import NOTES
from tests.docs import held
from tests.docs.pages import PYTHON, ROOT, Block, blocks, commands, pages, run, same

TOP = (ROOT, ROOT / "docs")  # whose Python tests/contracts/test_docs.py runs
FOLLOWED = ("pretrain", "finetune", "compare", "change", "generate", "convert", "cluster", "part")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def to_run(page: Path) -> list[Block]:
    """The blocks of a page that are run here, quick and slow ones."""
    elsewhere = PYTHON if page.parent in TOP else ()
    return [b for b in blocks(page) if b.mark != "parsed" and b.kind not in elsewhere]


def walks() -> list:
    """Pages to follow: without what is slow, and once more with it."""
    found = [(page, to_run(page)) for page in pages()]
    quick = [pytest.param(p, id=named(p)) for p, b in found if any(x.mark is None for x in b)]
    slow = [
        pytest.param(p, id=f"{named(p)}, slow", marks=pytest.mark.slow)
        for p, b in found
        if any(x.mark == "slow" for x in b)
    ]
    return quick + slow


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with a cache of its own; parts that a page makes are forgotten."""
    before = {*KINDS}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path / "here"
    for name in {*KINDS} - before:
        if not KINDS[name].__module__.startswith("anyformer."):
            PARTS.pop(KINDS.pop(name), None)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", walks())
def test_a_page_can_be_followed(page, request):
    slow = request.node.get_closest_marker("slow") is not None
    names: dict[str, object] = {"__name__": "__main__"}
    for block in to_run(page):
        if slow or block.mark is None:
            said = run(block, names)
            assert block.shown is None or same(block.shown, said), f"{block} prints:\n{said}"


@pytest.mark.parametrize("page", [p for p in pages() if blocks(p)], ids=named)
def test_commands_mean_something(page):
    for block in blocks(page):
        held.assert_held(block)


@pytest.mark.parametrize("file", sorted(NOTES.rglob("*.md")), ids=lambda f: f.stem)
def test_commands_of_the_tour_mean_something(file):
    """They are training runs of minutes, whose numbers the page shows; their Python is run."""
    for block in blocks(file):
        held.assert_held(block)


INLINE = re.compile(r"`(anyformer [a-z][^`\n]*|[^`\n]*python -m [^`\n]*)`")


@pytest.mark.parametrize("page", [*pages()], ids=named)
def test_commands_in_sentences_mean_something(page):
    for command in INLINE.findall(page.read_text(encoding="utf-8")):
        if "…" in command:
            command = _flags(command)
        if command.split()[1:2] != command.split()[1:]:  # more than the name of a verb
            held.assert_line(command)


def _flags(command: str) -> str:
    """A command that is not whole, as a question for help after checking its flags."""
    words = command.split()
    if words[0] == "anyformer":
        known = Path(ROOT / "src/anyformer/cli" / f"{words[1]}.py").exists()
        flags = [w for w in words if w.startswith("--")]
        text = _help(words[1])
        assert known and all(re.search(rf"{flag}\b", text) for flag in flags), command
    return "anyformer -h"


def _help(verb: str) -> str:
    from docs.site.cli import help_of

    return help_of(verb)


# ---------------------------------------------------------------- what holds them


def test_pages_to_follow_are_there_and_run():
    for name in FOLLOWED:
        found = to_run(ROOT / "docs" / "howto" / f"{name}.md")
        assert found, name


def test_sections_of_a_report_are_called_as_its_page_says():
    page = (ROOT / "docs" / "howto" / "report.md").read_text(encoding="utf-8")
    made = "".join(f.read_text() for f in (ROOT / "src/anyformer/study").rglob("*.*py"))
    titles = re.findall(r"^\| \*\*(.+?)\*\*", page, re.M)
    assert len(titles) > 5
    assert [title for title in titles if f'"{title}"' not in made] == []


def test_every_mark_says_why():
    few = [block for page in pages() for block in blocks(page) if block.mark == "parsed"]
    assert len(few) < 40
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for why in re.findall(r"^<!-- (?:parsed|slow):(.*?)-->", text, re.M):
            assert len(why.split()) > 1, named(page)
        marks = re.findall(r"^<!-- (?:parsed|slow):", text, re.M)
        above = re.findall(r"^<!-- (?:parsed|slow): [^\n]+ -->\n```", text, re.M)
        assert len(marks) == len(above), named(page)  # each stands right above its block


def page_of(tmp_path: Path, text: str) -> list[Block]:
    (tmp_path / "page.md").write_text(text)
    return blocks(tmp_path / "page.md")


def test_blocks_are_found_with_their_marks(tmp_path):
    found = page_of(
        tmp_path,
        "```sh\na \\\n  b # c\n```\n```text\n1\n```\n\n<!-- slow: long -->\n```python\nx\n```\n"
        "<!-- parsed: too long -->\n\n```sh\nrun\n```\n```md\nno\n```\n",
    )
    assert [(b.kind, b.mark, b.shown) for b in found] == [
        ("sh", None, "1\n"),
        ("python", "slow", None),
        ("sh", None, None),  # a mark stands right above its block
    ]
    assert commands(found[0].text) == ["a    b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("anyformer trian bert", "no verb"),
        ("anyformer train bert --stepz 3", "can't be read"),
        ("anyformer train bret dim=64", "did you mean 'bert'"),
        ("anyformer train bert dimm=64", "dimm"),
        ("anyformer train gpt2 --ask rate=0.2", "rate"),
        ("anyformer train gpt2 --set schedule.wramup=3", "wramup"),
        ("anyformer compare gpt2 gpt2+rotery", "rotery"),
        ("anyformer compare gpt2 gpt2+rotary --budget 10parsecs", "10parsecs"),
        ("torchrun --nproc-per-node 2 -m anyformer train lama", "llama"),
        ("python -m benchmarkz", "no module benchmarkz"),
        ("pip install '.[plot]'", "extras are"),
        ("no-such-program x", "there is no no-such-program"),
        ("anyformer laws gpt2 --law '1 casual'", "casual"),
    ],
)
def test_a_command_that_is_wrong_is_found(text, said):
    with pytest.raises((AssertionError, AnyformerError), match=re.escape(said)):
        held.assert_line(text)


def test_python_that_is_wrong_is_found():
    with pytest.raises(AssertionError, match="nothing_like_it"):
        held.assert_imports("from anyformer.data.corpus import nothing_like_it")
    with pytest.raises(SyntaxError):
        held.assert_imports("from x imprt y")


def test_what_is_shown_must_be_what_is_said(folder):
    assert same("loss 2.3\n…\nend\n", "loss 9.75\na\nb\nend\n")
    assert same("loss 2.3\n…\n", "loss 9.75\n")
    assert not same("loss 2.3\n", "accuracy 2.3\n")
    assert not same("a\nb\n", "a\nc\nb\n")
    [block] = page_of(folder, "```sh\nanyformer diff gpt2 gpt2\necho hello | anyformer lst\n```\n")
    with pytest.raises(AssertionError, match="anyformer lst"):
        run(block, {})
