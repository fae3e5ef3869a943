"""A few random specs under every law, other ones each day; and all that ever broke one."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyformer.cli.laws import seed_of
from anyformer.laws.keep import again
from anyformer.laws.many import try_laws
from anyformer.laws.table import LAWS

KEPT = sorted((Path(__file__).parent / "regressions").glob("*.json"))
SPECS = 2


def test_specs_of_today(capsys):
    first = seed_of("today")
    with capsys.disabled():  # a failure can be repeated: anyformer laws --random N --seed S
        print(f"\nlaws: {SPECS} specs from seed {first} on", end=" ")
    tally = try_laws(list(LAWS), range(first, first + SPECS))
    assert sum(tally.tried.values()) > 10 * SPECS
    assert not tally.found, "\n".join(map(str, tally.found))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_what_broke_once_holds(path):
    assert again(path) is None
