"""Write the golden curves anew: `python -m tests.golden.renew [NAME …]`.

With `--compare` nothing is written: it prints how far the curves are from those that are kept. So
one sees what another kind of CPU does to them, as with `ATEN_CPU_CAPABILITY=default`,
`MKL_ENABLE_INSTRUCTIONS=SSE4_2` and `ONEDNN_MAX_CPU_ISA=SSE41` in the environment.

With `--longer 10` nothing is written either: it trains ten times as many steps, to show how far
below the entropy each term comes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.golden.cases import CASES, LONG_CASES, TEACHER, Case, curves, trained

KEPT = Path(__file__).parent / "curves.json"


def main() -> None:
    """Train, print a table, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.golden.renew")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *CASES, *LONG_CASES])
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--longer", type=int, default=1, metavar="TIMES")
    given = parser.parse_args()
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    known = CASES | LONG_CASES if given.longer > 1 else CASES
    with tempfile.TemporaryDirectory() as root:
        for name in given.names or known:
            case = replace(known[name], steps=known[name].steps * given.longer)
            found, told = _trained(name, case, Path(root))
            if given.compare:
                far = {k: [f / w - 1 for f, w in zip(v, kept[name]["curves"][k], strict=True)]
                       for k, v in found.items()}  # fmt: skip
                print("   ", {k: [round(x, 4) for x in v] for k, v in far.items()}, flush=True)
            kept[name] = {"entropies": told, "curves": found}
    if not given.compare and given.longer == 1:
        kept = {name: kept[name] for name in CASES if name in kept}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


def _trained(name: str, case: Case, root: Path) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The curves of a case and the entropies beside them, which are printed."""
    teacher = None
    if name == "distillation":
        teacher = trained(CASES[TEACHER], root / "teacher")[0].folder
    begun = time.process_time()
    run, entropies = trained(case, root / name, teacher)
    spent, found = time.process_time() - begun, curves(run)
    for term, entropy in entropies.items():
        last = found[term][-1]
        print(
            f"{name:16} {case.family:10} {case.steps:5} steps {spent:6.1f} s  "
            f"{term:10} entropy {entropy:.3f} loss {last:.3f} ({last / entropy:.2f})",
            flush=True,
        )
    return found, {term: round(entropy, 4) for term, entropy in entropies.items()}


if __name__ == "__main__":
    main()
