"""Rows of a source file: what becomes a note, and that no line of code is lost."""

import ast

from docs.tour.source import MODULE, Text, files, name_of, read, rows

SAMPLE = '''"""What the file is.

More of it.
"""

import math

# -------- numbers --------
SIZE = 3


@decorated
def first(x):
    """Say what it does."""
    y = x  # a remark behind code stays there
    # Then the sum,
    # of two lines.
    return y + """
# no comment
"""


class Second:
    """A class."""

    def __init__(self):
        self.x = 1  # noqa: E501

    # type: ignore
    def method(self):
        return self.x


LAST = first(SIZE)
'''


def made(text: str = SAMPLE) -> Text:
    return Text(files()[0], text, text.splitlines(), ast.parse(text))


def by_key(also=()):
    return {row.key: row for row in rows(made(), also)}


def test_docstrings_and_comments_become_notes():
    found = by_key()
    assert found[MODULE].note == "What the file is.\n\nMore of it."
    assert found["first"].note == "Say what it does."
    assert found["first#2"].note == "Then the sum,\nof two lines."
    assert [*found] == [MODULE, "#2", "first", "first#2", "Second", "Second.method", "LAST"]
    assert found["#2"].note == "numbers"


def test_methods_as_init_belong_to_their_class_unless_there_is_a_note():
    assert "Second.__init__" not in by_key()
    assert "Second.__init__" in by_key(also={"Second.__init__"})
    assert by_key()["Second.method"].section
    assert not by_key(also={"Second.__init__"})["Second.__init__"].section


def test_a_constant_begins_a_row_where_there_is_a_note():
    assert "SIZE" in by_key(also={"SIZE"})
    assert by_key(also={"SIZE"})["SIZE"].note == "numbers"


def test_a_sign_of_comments_inside_a_string_is_none():
    lines = [made().lines[n - 1] for n in by_key()["first#2"].lines]
    assert "# no comment" in lines


def test_a_note_that_changes_has_another_hash():
    other = {row.key: row for row in rows(made(SAMPLE.replace("Say what", "Tell what")))}
    assert other["first"].digest != by_key()["first"].digest
    assert other["Second"].digest == by_key()["Second"].digest


def test_every_line_of_code_of_every_file_is_in_one_row():
    for file in files():
        source = read(file)
        found = rows(source)
        shown = [n for row in found for n in row.lines]
        assert len(shown) == len(set(shown))
        assert shown == sorted(shown)
        kept = "\n".join(source.lines[n - 1] if n in set(shown) else "" for n in _numbers(source))
        assert _bare(ast.parse(_with_bodies(kept, source))) == _bare(source.tree), name_of(file)


def _numbers(source: Text) -> range:
    return range(1, len(source.lines) + 1)


def _with_bodies(kept: str, source: Text) -> str:
    """The code that is shown; where a docstring was all that a body had, `...` stands for it."""
    lines = kept.split("\n")
    for node in ast.walk(source.tree):
        alone = isinstance(node, ast.ClassDef | ast.FunctionDef) and len(node.body) == 1
        if alone and ast.get_docstring(node):
            lines[node.body[0].lineno - 1] = " " * node.body[0].col_offset + "..."
    return "\n".join(lines)


def _bare(tree: ast.Module) -> str:
    """The tree without docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            rest = node.body[1:]
            node.body = (
                rest if rest or isinstance(node, ast.Module) else [ast.Expr(ast.Constant(...))]
            )
    return ast.dump(tree)
