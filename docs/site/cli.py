"""The page of the command: what each verb's own help says."""

from __future__ import annotations

import contextlib
import io
import os

from anyformer.cli.main import VERBS, main

HEAD = """\
# The command

`anyformer VERB --help` prints what is below. A command ends with 0 where all went well, with 2 for
bad input, with 3 for a file that could run code; `--debug` adds the traceback of an error.

"""


def page() -> str:
    """The page in Markdown."""
    blocks = [f"## anyformer {verb}\n\n```text\n{help_of(verb)}```\n" for verb in VERBS]
    return HEAD + "\n".join(blocks)


def help_of(verb: str) -> str:
    """What a verb's help prints, at a width of its own."""
    said, width = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "84"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([verb, "--help"])
    finally:
        if width is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = width
    return said.getvalue()
