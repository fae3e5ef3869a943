"""`anyformer convert`: old weights to safetensors, one format to the other, another dtype."""

from __future__ import annotations

import argparse

from anyformer.cli.text import in_bytes

EXAMPLE = """\
anyformer convert old-bert new-bert
anyformer convert org/name mine --to anyformer --dtype bfloat16"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("source", metavar="IN", help="a folder, or a name of Hugging Face's hub")
    parser.add_argument("target", metavar="OUT", help="the folder to write")
    parser.add_argument(
        "--to",
        choices=("huggingface", "anyformer"),
        help="the format to write (default: that of IN)",
    )
    parser.add_argument("--dtype", help="of the weights, as bfloat16 (default: as they are)")
    parser.add_argument("--force", action="store_true", help="write into a folder with files")


def run(args: argparse.Namespace) -> int:
    """Convert, and say what was written."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from anyformer.checkpoint import convert
    from anyformer.checkpoint.reader import place

    where = place(args.dtype, None)
    given = convert.source(args.source)
    out = convert.target(args.target, given, args.force)
    looks = (TextColumn("converting"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*looks, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=2 * given.size)  # read and written
        files = convert.convert(given, out, args.to, where, lambda n: bar.advance(task, n))
    size = sum((out / name).stat().st_size for name in files)
    print(f"{out}: {in_bytes(size)} in {', '.join(files)}")
    return 0
