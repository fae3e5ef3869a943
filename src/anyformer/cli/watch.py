"""`anyformer watch`: follow a study while it runs, in the terminal or the browser."""

from __future__ import annotations

import argparse
import sys
import threading
import webbrowser
from pathlib import Path

from anyformer.cli import studying

EXAMPLE = """\
anyformer watch studies/compare
anyformer watch studies/recursive-layers --serve
anyformer watch studies/recursive-layers --serve 9000 --no-open"""

PORT = 8377


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("folder", metavar="STUDY", help="the folder of a study")
    parser.add_argument(
        "--serve", nargs="?", type=int, const=PORT, metavar="PORT",
        help=f"show its report to a browser of this machine, made anew as runs go on (port {PORT}; "
        "0: any that is free); until Ctrl-C",
    )  # fmt: skip
    parser.add_argument("--no-open", action="store_true", help="don't open it in a browser")


def run(args: argparse.Namespace) -> int:
    """Follow a study until it is over, or serve it until an interrupt."""
    home = Path(args.folder)
    try:
        with studying.terminable():
            if args.serve is None:
                _follow(home)
            else:
                _serve(args, home)
    except studying.Interrupt:  # the usual way to end it
        pass
    return 0


def _follow(home: Path) -> None:
    from anyformer.study.watch import follow

    with studying.shown(timed=False) as watch:
        follow(home, watch, threading.Event())


def _serve(args: argparse.Namespace, home: Path) -> None:
    from anyformer.study.watch import Server

    with Server(home, args.serve) as server:
        print(f"{server.address} shows the study; Ctrl-C ends it", file=sys.stderr, flush=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
        thread.start()
        try:
            if not args.no_open and sys.stdout.isatty():
                webbrowser.open(server.address)
            _follow(home)
            thread.join()
        finally:
            server.shutdown()
