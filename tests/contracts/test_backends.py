"""What a spec may ask for is what there is."""

import typing

from anyformer.ops.attend import BACKENDS
from anyformer.parts.feedforward import ACTIVATIONS
from anyformer.spec import Attention
from anyformer.spec.feedforward import Activation
from anyformer.spec.node import hints


def test_a_spec_names_the_backends_that_exist() -> None:
    assert set(typing.get_args(hints(Attention)["backend"])) == {"auto", *BACKENDS}


def test_a_spec_names_the_activations_that_exist() -> None:
    assert set(typing.get_args(Activation)) == set(ACTIVATIONS)
