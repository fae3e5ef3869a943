"""float16 that is too small for a model is told of, with the module at which numbers are lost."""

import pytest
import torch

from anyformer import build
from anyformer import spec as S
from anyformer.cli.main import main
from anyformer.laws.overflow import overflows
from tests.laws.test_mutations import crossing, plain


def grown(path: str, by: float, spec=None):
    """A model in float16, one matrix of which is far too large."""
    torch.manual_seed(0)
    model = build(spec or plain()).eval()
    with torch.no_grad():
        model.get_parameter(path).mul_(by)
    return model.half()


@pytest.mark.parametrize("spec", [plain(), crossing()], ids=["decoder", "cross-attention"])
def test_a_model_that_fits_is_not_blamed(spec):
    torch.manual_seed(0)
    assert overflows(build(spec).half().eval()) is None


@pytest.mark.parametrize("path", ["stack.blocks.1.1.branch.up", "stack.blocks.0.0.branch.v"])
def test_the_first_module_is_named(path):
    found = overflows(grown(f"{path}.weight", 3e6))
    assert found is not None and (found.path, found.kind) == (path, "Linear")
    assert "65,504" in str(found) and "bfloat16" in str(found)


def test_what_is_lost_between_modules_is_blamed_on_the_one_around_them():
    block = (plain().stack.block[0], S.Sublayer(branch=S.FeedForward(act="relu2")))
    found = overflows(grown("stack.blocks.0.1.branch.up.weight", 1e5, plain(stack_block=block)))
    assert found is not None and (found.path, found.kind) == (
        "stack.blocks.0.1.branch",
        "FeedForward",
    )


def test_the_command_warns_and_ends_with_1(tmp_path, capsys):
    for name, by, status in (("fits", 1.0, 0), ("large", 700.0, 1)):
        model = grown("stack.blocks.0.1.branch.up.weight", by).float()
        with torch.no_grad():
            model.get_parameter("stack.blocks.0.1.branch.down.weight").mul_(by * by)
        model.save_pretrained(tmp_path / name)
        assert main(["laws", str(tmp_path / name), "--overflow"]) == status
    out = capsys.readouterr().out
    assert "fits: one batch in float16 stays finite" in out
    assert "warning: stack.blocks.0.1.branch.down (Linear)" in out
    assert main(["laws", "gpt2", "--overflow"]) == 2
