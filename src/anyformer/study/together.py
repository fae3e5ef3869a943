"""What several panels of one study say together."""

from __future__ import annotations

import json
from pathlib import Path

from anyformer.study import scaling
from anyformer.study.gather import STUDY
from anyformer.study.run import opened
from anyformer.study.shipped.scale import STUDY as SCALING
from anyformer.train.run import write

NAME = "scaling"


def panels_in(folder: str | Path) -> list[Path]:
    """The folders of studies right below a folder, by name."""
    return sorted(file.parent for file in Path(folder).glob(f"*/{STUDY}"))


def together(folder: str | Path, out: str | Path | None = None) -> list[Path]:
    """Write what panels say together into their folder: power laws, where they are of `scaling`."""
    home = Path(out or folder)
    found = [opened(panel) for panel in panels_in(folder)]
    chosen = [r for r in found if r.name.partition("/")[0] == SCALING]
    runs = scaling.runs_of(chosen)
    if len(runs) < 4:
        return []
    fitted = scaling.fit(runs)
    head, *rows = scaling.table(fitted)
    lines = ["# Loss against size, data and compute", ""]
    lines += [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    lines += [
        "",
        f"{len(runs)} runs. N: parameters outside embeddings; D: tokens; C: FLOPs of training. "
        "In brackets 95 % intervals.",
    ]
    write(home / f"{NAME}.md", "\n".join(lines) + "\n")
    told = [
        {"N": r.size, "D": r.tokens, "C": r.flops, "loss": r.loss, "seed": r.seed} for r in runs
    ]
    write(home / f"{NAME}.jsonl", "\n".join(map(json.dumps, told)) + "\n")
    drawn = [scaling.figure(fitted, home / f"{NAME}.{kind}") for kind in ("png", "svg")]
    return [home / f"{NAME}.md", home / f"{NAME}.jsonl", *drawn]
