"""Write the golden curves anew: `python -m tests.golden.renew [NAME …]`.

With `--compare` nothing is written: it prints how far the curves are from those that are kept. So
one sees what another kind of CPU does to them, as with `ATEN_CPU_CAPABILITY=default`,
`MKL_ENABLE_INSTRUCTIONS=SSE4_2` and `ONEDNN_MAX_CPU_ISA=SSE41` in the environment.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from tests.golden.cases import CASES, TEACHER, curves, trained

KEPT = Path(__file__).parent / "curves.json"


def main() -> None:
    """Train, print a table, and write what was found."""
    chosen = [name for name in sys.argv[1:] if name != "--compare"] or list(CASES)
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as root:
        for name in chosen:
            folder, teacher = Path(root) / name, None
            if name == "distillation":
                teacher = trained(CASES[TEACHER], Path(root) / "teacher")[0].folder
            begun = time.process_time()
            run, entropies = trained(CASES[name], folder, teacher)
            spent, found = time.process_time() - begun, curves(run)
            for term, entropy in entropies.items():
                last = found[term][-1]
                steps, share = CASES[name].steps, last / entropy
                print(
                    f"{name:16} {CASES[name].family:10} {steps:4} steps {spent:5.1f} s  "
                    f"{term:10} entropy {entropy:.3f} loss {last:.3f} ({share:.2f})",
                    flush=True,
                )
            if "--compare" in sys.argv:
                far = {k: [f / w - 1 for f, w in zip(v, kept[name]["curves"][k], strict=True)]
                       for k, v in found.items()}  # fmt: skip
                print("   ", {k: [round(x, 4) for x in v] for k, v in far.items()}, flush=True)
                continue
            told = {term: round(entropy, 4) for term, entropy in entropies.items()}
            kept[name] = {"entropies": told, "curves": found}
    if "--compare" not in sys.argv:
        kept = {name: kept[name] for name in CASES if name in kept}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
