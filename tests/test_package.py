"""The public names of the package."""

import subprocess
import sys

import pytest

import anyformer
from anyformer.model.count import count
from anyformer.recipes.registry import recipe
from anyformer.spec import diff, override


def test_names_lead_home():
    assert anyformer.recipe is recipe
    assert anyformer.count is count
    assert (anyformer.diff, anyformer.override) == (diff, override)


def test_all_names_are_listed():
    assert set(anyformer.__all__) <= set(dir(anyformer))
    assert isinstance(anyformer.__version__, str)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = anyformer.nonsense


@pytest.mark.parametrize("before", ["pass", "anyformer.recipe('bert')", "import anyformer.recipes"])
def test_recipes_can_be_called_in_any_order(before):
    code = f"import anyformer\n{before}\nassert 'bert' in anyformer.recipes()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
