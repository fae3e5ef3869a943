"""Settings are data with rules."""

import pytest

from anyformer import spec as S
from anyformer.errors import SpecError
from anyformer.train.settings import AdamW, Constant, Muon, Saving, Settings, check


def test_settings_go_to_json_and_back():
    given = Settings(optimiser=Muon(momentum=0.9), frozen=("embed.*",), guard=None)
    assert S.from_json(S.to_json(given)) == given


def test_a_path_changes_them():
    assert S.override(Settings(), "saving.every", 7).saving.every == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 6, "micro": 4}, "divisor"),
        ({"batch": 7}, "multiple"),
        ({"optimiser": AdamW(betas=(0.9,))}, "two numbers"),
        ({"stream": "bfloat16"}, "take precision='bfloat16'"),
        ({"ema": 1.0}, "below 1"),
        ({"steps": 5, "schedule": Constant(warmup=6)}, "fewer"),
        ({"saving": Saving(best=False, take="best")}, r"saving\.best"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message):
    with pytest.raises(SpecError, match=message):
        check(Settings(**options), world=2 if "batch" in options else 1)
