"""`python -m docs.build`: the documentation site, offline and without a warning.

It needs the extra `docs` (`pip install -c constraints.txt -e ".[docs]"`) and writes `build/docs/`.
Open `build/docs/html/index.html` in a browser, no server is needed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from docs.site.stage import ROOT, stage

SITE = Path(__file__).parent / "site"


def build(out: Path, loud: bool = False) -> int:
    """Build the site into out/html; the status is 0 where there was no warning."""
    from sphinx.cmd.build import build_main

    source, beside = out / "source", out / "beside"
    stage(source, beside)
    shutil.rmtree(out / "html", ignore_errors=True)  # pages that are no more
    where = ["-c", str(SITE), "-d", str(out / "doctrees"), "-D", f"html_extra_path={beside}"]
    form = ["-b", "html", "-j", "2", "-W", "--keep-going", *([] if loud else ["-q"])]
    return build_main([*form, *where, str(source), str(out / "html")])


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m docs.build", description="Build the site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="folder")
    parser.add_argument("--loud", action="store_true", help="say what is being done")
    args = parser.parse_args(argv)
    status = build(args.out.resolve(), args.loud)
    print(f"{args.out}/html/index.html" if status == 0 else "the site was not built", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
