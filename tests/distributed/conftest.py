"""The runs that most tests here compare with."""

import pytest

from tests.distributed.helping import assert_done

KINDS = {"ddp": {"kind": "ddp"}, "fsdp": {"kind": "fsdp"}, "tensor": {"tensor": 2}}


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with a run of one process, and of two in each way."""
    folder = tmp_path_factory.mktemp("runs")
    jobs = [{"case": "gpt2", "world": 1, "out": str(folder / "one")}]
    jobs += [{"case": "gpt2", "world": 2, "out": str(folder / k), **KINDS[k]} for k in KINDS]
    assert_done(folder, jobs)
    return folder
