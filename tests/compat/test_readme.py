"""The 28 examples of x-transformers' README: same classes, same keywords, smaller sizes.

Each runs forward and backward, and every parameter gets a gradient.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from anyformer.compat.x_transformers import (
    ContinuousTransformerWrapper,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)
from anyformer.errors import InputError
from tests.parity.carry import disturb

DIM, VOCAB, LENGTH = 32, 40, 16
SMALL: dict[str, Any] = {"dim": DIM, "depth": 2, "heads": 2}
Run = Callable[[], tuple[list[nn.Module], Tensor]]  # the models, and what they answered


def tokens(length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCAB, (1, length))


def wrapped(layers: nn.Module, **outer: Any) -> TransformerWrapper:
    sizes = {"num_tokens": VOCAB, "max_seq_len": 4 * LENGTH}
    return TransformerWrapper(**sizes, attn_layers=layers, **outer)


def language(layers: type[nn.Module], outer: dict[str, Any] | None = None, **words: Any) -> Run:
    """A wrapper around layers with some keywords, called with tokens and a mask."""

    def run() -> tuple[list[nn.Module], Tensor]:
        model = wrapped(layers(**SMALL | words), **outer or {})
        disturb(model)
        mask = torch.ones(1, LENGTH).bool() if layers is Encoder else None
        answer = model(tokens(), mask=mask)
        assert answer.shape == (1, LENGTH, VOCAB)
        return [model], answer

    return run


def translation(**words: Any) -> Run:
    def run() -> tuple[list[nn.Module], Tensor]:
        sides = {"num_tokens": VOCAB, "depth": 2, "heads": 2, "max_seq_len": LENGTH}
        sizes = {f"{side}_{name}": n for side in ("enc", "dec") for name, n in sides.items()}
        model = XTransformer(dim=DIM, **sizes, **words)
        disturb(model)
        src, tgt = tokens(), tokens()
        masks = {"src_mask": torch.ones_like(src).bool(), "tgt_mask": torch.ones_like(tgt).bool()}
        loss = model(src, tgt, **masks)
        assert loss.shape == ()
        return [model], loss

    return run


def image_classes() -> tuple[list[nn.Module], Tensor]:
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 10}
    model = ViTransformerWrapper(**sizes, attn_layers=Encoder(**SMALL))
    answer = model(torch.randn(1, 3, 32, 32))
    assert answer.shape == (1, 10)
    return [model], answer


def image_caption() -> tuple[list[nn.Module], Tensor]:
    encoder = ViTransformerWrapper(image_size=32, patch_size=8, attn_layers=Encoder(**SMALL))
    decoder = wrapped(Decoder(**SMALL, cross_attend=True))
    encoded = encoder(torch.randn(1, 3, 32, 32), return_embeddings=True)
    assert encoded.shape == (1, 17, DIM)
    return [encoder, decoder], decoder(tokens(), context=encoded)


def bare_memory() -> tuple[list[nn.Module], Tensor]:
    model = Encoder(**SMALL, attn_num_mem_kv=16)
    return [model], model(torch.randn(1, LENGTH, DIM))


def graph() -> tuple[list[nn.Module], Tensor]:
    encoder, model = Encoder(dim=DIM, depth=2), CrossAttender(dim=DIM, depth=2)
    masks = torch.ones(1, 1).bool(), torch.ones(1, 5).bool()
    encoded = encoder(torch.randn(1, 5, DIM), mask=masks[1])
    nodes = torch.randn(1, 1, DIM)
    answer = model(nodes, context=encoded, mask=masks[0], context_mask=masks[1])
    assert answer.shape == (1, 1, DIM)
    return [encoder, model], answer


def continuous() -> tuple[list[nn.Module], Tensor]:
    sizes = {"dim_in": 12, "dim_out": 20, "max_seq_len": LENGTH}
    model = ContinuousTransformerWrapper(**sizes, attn_layers=Decoder(**SMALL))
    answer = model(torch.randn(1, LENGTH, 12), mask=torch.ones(1, LENGTH).bool())
    assert answer.shape == (1, LENGTH, 20)
    return [model], answer


def segments() -> tuple[list[nn.Module], Tensor]:
    model = wrapped(Decoder(**SMALL, rel_pos_bias=True), max_mem_len=64)
    disturb(model)
    answers, memory = [], None
    for _ in range(3):
        answer, memory = model(tokens(), mems=memory, return_mems=True)
        answers.append(answer)
    return [model], torch.cat(answers)


BLOCKS: dict[str, Run] = {
    "1 encoder and decoder": translation(tie_token_emb=True),
    "2 decoder": language(Decoder),
    "3 GPT-3": language(Decoder, attn_dim_head=24),
    "4 encoder": language(Encoder),
    "5 image classification": image_classes,
    "6 image to caption": image_caption,
    "7 dropouts": language(Decoder, {"emb_dropout": 0.1}, attn_dropout=0.1, ff_dropout=0.1),
    "8 memory keys and values": bare_memory,
    "9 memory tokens": language(Encoder, {"num_memory_tokens": 20}),
    "10 scalenorm": language(Decoder, use_scalenorm=True),
    "11 GLU": language(Decoder, ff_glu=True),
    "12 ReZero": language(Decoder, use_rezero=True),
    "13 top-k": language(Decoder, attn_sparse_topk=8),
    "14 entmax": language(Decoder, attn_use_entmax15=True),
    "15 talking heads": language(Decoder, talking_heads=True),
    "16 collaborative": language(Decoder, attn_collab_heads=True, attn_collab_compression=0.3),
    "17 attention on attention": language(Encoder, attn_on_attn=True),
    "18 sandwich": language(Encoder, depth=6, sandwich_coef=6),
    "19 macaron": language(Encoder, macaron=True),
    "20 T5 bias": language(Decoder, rel_pos_bias=True),
    "21 infused": language(Decoder, position_infused_attn=True),
    "22 residual attention": language(Encoder, pre_norm=False, residual_attn=True),
    "23 residual cross-attention": translation(dec_cross_residual_attn=True),
    "24 Transformer-XL": segments,
    "25 gated residual": language(Decoder, {"max_mem_len": 64}, gate_residual=True),
    "26 rotary": language(Decoder, rotary_pos_emb=True),
    "27 cross-attention": graph,
    "28 continuous values": continuous,
}


def test_all_28_are_there():
    assert [int(name.split()[0]) for name in BLOCKS] == list(range(1, 29))


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name: str):
    models, answer = BLOCKS[name]()
    assert bool(answer.isfinite().all())
    (answer if answer.dim() == 0 else answer.square().mean()).backward()
    without = [
        key
        for model in models
        for key, parameter in model.named_parameters()
        if parameter.grad is None or not bool(parameter.grad.any())
    ]
    assert not without


SEGMENTED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the layers, of the wrapper
    "T5 bias": ({"rel_pos_bias": True}, {}),
    "T5 bias, post-norm": ({"rel_pos_bias": True, "pre_norm": False}, {}),
    "gated residual, absolute positions": ({"gate_residual": True}, {}),
    "gated residual, T5 bias": ({"gate_residual": True, "rel_pos_bias": True}, {}),
    "rotary": ({"rotary_pos_emb": True}, {}),
    "infused": ({"position_infused_attn": True}, {}),
    "ALiBi": ({"alibi_pos_bias": True}, {}),
    "memory keys and values": ({"rel_pos_bias": True, "attn_num_mem_kv": 3}, {}),
    "memory tokens": ({"rel_pos_bias": True}, {"num_memory_tokens": 3}),
    "residual attention": ({"rel_pos_bias": True, "residual_attn": True}, {}),
    "sandwich, macaron": ({"rel_pos_bias": True, "sandwich_coef": 1, "macaron": True}, {}),
    "shared layers": ({"rotary_pos_emb": True, "weight_tie_layers": True}, {}),
    "talking heads": ({"rel_pos_bias": True, "talking_heads": True, "attn_sparse_topk": 5}, {}),
}


@pytest.mark.parametrize("name", SEGMENTED)
def test_segments_with_memory_equal_one_long_pass(name: str):
    words, outer = SEGMENTED[name]
    model = wrapped(Decoder(**SMALL, **words), max_mem_len=64, **outer).eval()
    disturb(model)
    ids = torch.randint(0, VOCAB, (2, 3 * LENGTH))
    memory, answers = None, []
    for segment in ids.split(LENGTH, 1):
        answer, memory = model(segment, mems=memory, return_mems=True)
        answers.append(answer)
    assert (torch.cat(answers, 1) - model(ids)).abs().max() < 1e-5


def test_memories_need_a_length():
    with pytest.raises(InputError, match="recurrence"):
        wrapped(Decoder(**SMALL, rel_pos_bias=True))(tokens(), return_mems=True)
