"""What is data stays free of torch, and kernels are named in one place only."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "anyformer"

WITHOUT_TORCH = {
    "the package": "import anyformer",
    "specs": "import anyformer.spec",
    "recipes": "import anyformer.recipes",
    "the command line": "import anyformer.cli.main",
    "anyformer list": "from anyformer.cli.main import main; status = main(['list'])",
    "anyformer show bert": "from anyformer.cli.main import main; status = main(['show', 'bert'])",
}

PROBE = """
import sys
status = 0
try:
    exec(sys.argv[1])
except SystemExit as end:
    status = end.code
assert not status, f"exit status {status}"
heavy = sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers"})
assert not heavy, f"loaded: {heavy}"
"""


@pytest.mark.parametrize("statement", WITHOUT_TORCH.values(), ids=WITHOUT_TORCH.keys())
def test_torch_is_not_loaded(statement):
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE, statement],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_kernels_are_named_only_in_ops():
    kernels = re.compile("scaled_dot_product_attention|flex_attention")
    files = sorted(SOURCE.rglob("*.py"))
    assert files
    elsewhere = [
        file.relative_to(SOURCE).as_posix()
        for file in files
        if SOURCE / "ops" not in file.parents and kernels.search(file.read_text(encoding="utf-8"))
    ]
    assert not elsewhere
