"""The convolution beside the first block, against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from anyformer import spec as S
from anyformer.parts import build
from anyformer.parts.state import Call


def made(**options):
    torch.manual_seed(0)
    part = build(S.Convolution(**options), 6)
    for parameter in part.parameters():
        torch.nn.init.normal_(parameter)
    return part


def call(**more):
    return Call(length=7, positions=torch.arange(7)[None], **more)


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("groups", [1, 3])
def test_it_is_a_convolution_of_what_lies_below(kernel, groups):
    part = made(kernel=kernel, groups=groups, act="gelu")
    x, below = torch.randn(2, 2, 7, 6)
    said = F.conv1d(below.mT, part.weight, part.bias, padding=kernel // 2, groups=groups).mT
    torch.testing.assert_close(part(x, below, call()), part.norm(x + F.gelu(said)))


def test_padding_and_other_documents_are_zeros_to_it():
    part = made(norm=None)
    x, below = torch.randn(2, 2, 7, 6)
    keep = torch.tensor([[True] * 4 + [False] * 3, [False] * 2 + [True] * 5])
    found = part(x, below, call(keep=keep))
    for row, real in enumerate(keep):
        alone = part(x[row : row + 1, real], below[row : row + 1, real], Call(0, torch.arange(0)))
        torch.testing.assert_close(found[row, real], alone[0])
    documents = torch.tensor([[0, 0, 0, 4, 4, 1, 1]] * 2)
    found = part(x, below, call(documents=documents))
    for at in (slice(0, 3), slice(3, 5), slice(5, 7)):
        alone = part(x[:, at], below[:, at], Call(0, torch.arange(0)))
        torch.testing.assert_close(found[:, at], alone)
