"""`anyformer attend`: what every head of a model looks at, as an interactive page and a PNG."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from anyformer.errors import InputError

if TYPE_CHECKING:
    from anyformer.tasks.attend import Attended

EXAMPLE = """\
anyformer attend my-bert/ "The cat sat on the mat because it was tired." --open
anyformer attend my-t5/ "translate English to German: Good day" --target "Guten Tag"
anyformer attend my-vit/ --image cat.png --layers 0,6-11
anyformer attend my-gpt2/ - --first 64 --out pictures/gpt2.html < story.txt"""

MOST = 5  # digits of a layer's or a head's number


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("model", metavar="MODEL", help="a folder or a name of the hub")
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what it reads; -: standard input")
    parser.add_argument(
        "--target", help="what the decoder of an encoder-decoder reads (default: its own answer)"
    )
    parser.add_argument("--image", metavar="FILE", help="an image, for a model that reads one")
    parser.add_argument("--layers", help="as 0,3-5, counted from 0 (default: all)")
    parser.add_argument("--heads", help="as 0,3-5, counted from 0 (default: all)")
    parser.add_argument(
        "--first", type=int, metavar="N", help="only the first N tokens of a text beyond 128"
    )
    parser.add_argument("--out", default="attention.html", help="the page (default: %(default)s)")
    parser.add_argument(
        "--png", metavar="FILE",
        help="a picture of all heads (default: beside the page, where matplotlib is installed)",
    )  # fmt: skip
    parser.add_argument("--no-png", action="store_true", help="write the page alone")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(args: argparse.Namespace) -> int:
    """Look, and write the page and the picture."""
    layers, heads = numbers(args.layers, "--layers"), numbers(args.heads, "--heads")
    if args.png and args.no_png:
        raise InputError("--png and --no-png exclude each other: leave one of them out")
    from anyformer.tasks.attend import attend
    from anyformer.tasks.attention.figure import matplotlib

    if args.png:
        matplotlib()  # now, not after all the work

    text = sys.stdin.read() if args.text == "-" else args.text
    found = attend(args.model, text, target=args.target, image=args.image, first=args.first)
    found = found.only(layers, heads)
    page = found.save(args.out)
    print(f"page: {page}")
    picture = _picture(args, found, page)
    if picture is not None:
        print(f"picture: {picture}")
    if args.open and sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    return 0


def _picture(args: argparse.Namespace, found: Attended, page: Path) -> Path | None:
    """The PNG, where it is asked for or can be had."""
    if args.no_png:
        return None
    if args.png is None and find_spec("matplotlib") is None:
        print("no picture: it needs matplotlib (pip install 'anyformer[plots]')", file=sys.stderr)
        return None
    return found.png(args.png or page.with_suffix(".png"))


def numbers(text: str | None, option: str) -> list[int] | None:
    """Whole numbers as they are written: 0,3-5."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not _number(first) or (dash and not _number(last)):
            raise InputError(f"{option} {text!r}: write numbers and spans of them, as 0,3-5")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _number(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST
