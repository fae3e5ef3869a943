"""What a call remembers, and which masks it hands out."""

import torch

from anyformer.ops.mask import Causal, Documents, Or, Padding, Window, parts
from anyformer.parts.state import Call, Past


def call(length=3, **fields):
    return Call(length=length, positions=torch.arange(length)[None], **fields)


def kv(length, value=0.0):
    return torch.full((1, 2, length, 4), value), torch.full((1, 2, length, 4), value)


def test_a_cache_grows():
    past = Past(length=2, kv={"0.0": kv(2, 1.0)})
    following = Past()
    k, v = call(past=past, following=following).extend("0.0", *kv(3, 2.0))
    assert k[0, 0, :, 0].tolist() == v[0, 0, :, 0].tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    assert following.kv["0.0"][0] is k
    assert past.kv["0.0"][0].shape[2] == 2  # what was is as it was


def test_paths_are_apart():
    past = Past(length=2, kv={"0.0": kv(2)})
    k, _ = call(past=past).extend("1.0", *kv(3))
    assert k.shape[2] == 3


def test_without_a_past_nothing_is_added():
    k, v = kv(3)
    assert call().extend("0.0", k, v) == (k, v)
    x = torch.randn(1, 3, 4)
    assert call().recall("0.0", x) is x
    assert call().start == 0
    assert call(past=Past(length=7)).start == 7


def test_segments_are_recalled_and_kept():
    x = torch.arange(3.0).view(1, 3, 1).requires_grad_()
    old = torch.tensor([-2.0, -1.0]).view(1, 2, 1)
    following = Past(limit=4)
    this = call(past=Past(limit=4, length=2, hidden={"0.0": old}), following=following)
    whole = this.recall("0.0", x)
    assert whole.flatten().tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]
    kept = following.hidden["0.0"]
    assert kept.flatten().tolist() == [-1.0, 0.0, 1.0, 2.0]
    assert not kept.requires_grad
    this.recall("0.0", x + 9)  # a second pass, as recomputation makes it
    assert following.hidden["0.0"] is kept


def test_a_cache_recalls_no_inputs():
    x = torch.randn(1, 3, 4)
    following = Past()
    assert call(past=Past(length=2), following=following).recall("0.0", x) is x
    assert following.hidden == {}


def test_pinned_positions_stay():
    past = Past(limit=2, pinned=1)
    row = torch.arange(6)[None]
    assert past.kept(row).tolist() == [[0, 4, 5]]
    assert past.kept(row[:, :3]).tolist() == [[0, 1, 2]]
    assert Past(limit=2).kept(row).tolist() == [[4, 5]]
    assert past.kept(row[..., None])[..., 0].tolist() == [[0, 4, 5]]


def test_kinds_of_past():
    assert Past().is_cache
    assert not Past(limit=0).is_cache


def test_the_encoders_keys_are_remembered_by_caches_alone():
    known = kv(5)
    assert call(past=Past(kv={"0.1": known})).remembered("0.1") is known
    assert call(past=Past(kv={"0.1": known})).remembered("1.1") is None
    assert call(past=Past(limit=3, kv={"0.1": known})).remembered("0.1") is None
    assert call().remembered("0.1") is None


def test_masks():
    keep, ids = torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 3)
    assert call().mask(False, None, False) is None
    assert call().mask(True, None, False) == Causal()
    assert call().mask(True, 4, False) == Causal() & Window(4)
    full = call(keep=keep, documents=ids, right=True).mask(True, 4, False)
    kinds = [type(m) for m in parts(full)]
    assert kinds == [Causal, Window, Documents, Padding]
    padding = parts(full)[-1]
    assert isinstance(padding, Padding)
    assert (padding.queries, padding.right) == (True, True)
    assert isinstance(call(prefix=torch.ones(1)).mask(True, None, False), Or)


def test_cross_masks_know_the_context_alone():
    keep = torch.ones(1, 3, dtype=torch.bool)
    assert call(keep=keep).mask(False, None, True) is None
    mask = call(context_keep=keep).mask(False, None, True)
    assert isinstance(mask, Padding)
    assert mask.keep is keep
    assert not mask.queries


def test_equal_questions_get_one_mask():
    this = call(keep=torch.ones(1, 3, dtype=torch.bool))
    assert this.mask(True, None, False) is this.mask(True, None, False)
    assert this.mask(True, None, False) is not this.mask(True, 2, False)
