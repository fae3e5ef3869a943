"""A training step of a small decoder: forward, backward, AdamW; ours and the peers'."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.model import build
from benchmarks.minimal import Minimal
from benchmarks.runner import Settings, Table, race, rows_of

VOCAB, DIM, DEPTH, HEADS = 65, 384, 6, 6
Contestant = tuple[nn.Module, Callable[[nn.Module, Tensor], Tensor]]  # a model, how to get logits


def decoder(length: int, t5: bool = False) -> Contestant:
    """Ours: pre-norm, learned positions or T5 bias, an untied head."""
    attention = S.Attention(heads=HEADS, causal=True, bias=False, out_bias=False)
    norm = S.LayerNorm(bias=False)  # as x-transformers has it
    branches = (attention, S.FeedForward())
    stack = S.Stack(
        block=tuple(S.Sublayer(branch=b, norm=norm) for b in branches),
        depth=DEPTH,
        final_norm=norm,
        relative=(S.Buckets(bidirectional=False),) if t5 else (),
    )
    position = None if t5 else S.Learned(length=length)
    embed = S.Embed(source=S.Tokens(vocab=VOCAB), position=position)
    model = build(S.Model(dim=DIM, embed=embed, stack=stack, head=S.Vocabulary(tied=False)))
    return model, lambda m, x: m(x).logits


def x_transformers(length: int, **options: bool) -> Contestant:
    """The peer x-transformers."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=DIM, depth=DEPTH, heads=HEADS, **options)
    model = TransformerWrapper(num_tokens=VOCAB, max_seq_len=length, attn_layers=layers)
    return model, lambda m, x: m(x)


def gpt2(length: int) -> Contestant:
    """The peer Hugging Face, its GPT-2 without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCAB, n_positions=length, n_embd=DIM, n_layer=DEPTH, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), lambda m, x: m(x, use_cache=False).logits


def by_hand(length: int) -> Contestant:
    """The least that one would write."""
    return Minimal(VOCAB, DIM, DEPTH, HEADS, length), lambda m, x: m(x)


def stepper(contestant: Contestant, ids: Tensor, half: bool, compiled: bool) -> Callable[[], None]:
    """One training step of a contestant on a fixed batch."""
    model, logits = contestant
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    called = torch.compile(model) if compiled else model
    x, y = ids[:, :-1].contiguous(), ids[:, 1:].flatten()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = logits(called, x)
        F.cross_entropy(out.float().flatten(0, 1), y).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def _run(settings: Settings, name: str, title: str, batch: int, length: int, make: dict) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    head = ["dtype", "mode", "contestant", "best ms", "median ms", "of best", "by rounds"]
    table = Table(title, head)
    for dtype in settings.dtypes:
        for compiled in (False, True) if settings.compile else (False,):
            torch.manual_seed(0)
            torch._dynamo.reset()
            ids = torch.randint(0, VOCAB, (batch, length + 1))
            half = dtype == "bfloat16"
            steps = {n: stepper(m(length), ids, half, compiled) for n, m in make.items()}
            times = race(steps, settings.rounds)
            mode = "compiled" if compiled else "eager"
            table.rows += [[dtype, mode, *row] for row in rows_of(times, "anyformer")]
            table.raw[f"{dtype} {mode}"] = times
            del steps
            gc.collect()
    table.notes.append(
        f"batch {batch}, length {length}, {DEPTH} layers, width {DIM}, {HEADS} heads"
    )
    table.show(settings, name)


def plain(settings: Settings) -> None:
    """The plain decoder at length 256."""
    make = {
        "anyformer": decoder,
        "x-transformers": x_transformers,
        "x-transformers, flash": lambda n: x_transformers(n, attn_flash=True),
        "Hugging Face GPT-2": gpt2,
        "by hand": by_hand,
    }
    _run(settings, "cpu_train_step", "Training step, plain decoder, CPU", 16, 256, make)


def t5(settings: Settings) -> None:
    """A decoder with T5 bias at length 2048."""
    make = {
        "anyformer": lambda n: decoder(n, t5=True),
        "x-transformers": lambda n: x_transformers(n, rel_pos_bias=True),
    }
    _run(settings, "cpu_t5_step", "Training step, T5 bias, length 2048, CPU", 1, 2048, make)
