"""A training step of each family: ours, as a run takes it, beside the peers'.

`python -m benchmarks families --device cuda`: GPT-2, BERT, DeBERTa-v3 and T5 of their base sizes in
bfloat16, without dropout, on random tokens, AdamW and clipping included; `--compile` adds the
peers compiled. On a CPU the sizes are tiny, and the table says only that all of it runs.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.model.count import count
from anyformer.model.model import build
from anyformer.objectives.base import IGNORED, Batch, Trainee
from anyformer.objectives.causal import NextToken
from anyformer.parts import attention, feedforward
from anyformer.recipes import recipe
from anyformer.train.prepare import prepare
from anyformer.train.ranks import alone
from anyformer.train.settings import Settings as Training
from anyformer.train.step import Stepper
from benchmarks.minimal import Minimal
from benchmarks.rows import changed
from benchmarks.runner import Settings, Table, interval, race

MASKED = 0.15  # of the tokens of a row
STEPS = 4  # of a round
TINY = {"dim": 32, "depth": 2, "heads": 2, "vocab": 300}
Step = Callable[[], None]


@dataclass(frozen=True)
class Family:
    """A model of ours and its peers, and the rows that they read."""

    name: str
    ours: Callable[[bool], S.Model]  # tiny or not
    theirs: Callable[[S.Model], nn.Module]  # of the same sizes
    rows: int
    length: int
    masked: bool = False
    paired: bool = False
    hand: bool = False  # a minimal model written by hand beside
    graph: bool = False  # beside, steps of ours as one CUDA graph, and with kernels of our own
    float8: bool = False  # beside, ours with wide maps in float8

    def batch(self, spec: S.Model, device: str, tiny: bool) -> Batch:
        """Random tokens."""
        assert isinstance(spec.embed.source, S.Tokens)
        rows, length = (2, 16) if tiny else (self.rows, self.length)
        draw = lambda: torch.randint(4, spec.embed.source.vocab, (rows, length))  # type: ignore[union-attr]
        ids, labels = draw(), draw()
        if self.masked:
            labels = torch.where(torch.rand(rows, length) < MASKED, ids, IGNORED)
        found = {"input_ids": ids, "labels": labels}
        if self.paired:
            found["decoder_input_ids"] = draw()
        return {name: ids.to(device) for name, ids in found.items()}


def _sizes(spec: S.Model) -> dict[str, int]:
    first = spec.stack.block[0].branch
    assert isinstance(first, S.Attention) and isinstance(spec.embed.source, S.Tokens)
    sizes = {"dim": spec.dim, "depth": spec.stack.depth, "heads": first.heads}
    return {**sizes, "vocab": spec.embed.source.vocab}


def _hf(name: str, config: str, **options: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, config)(**options)
    return getattr(transformers, name)(made)


def _gpt2(spec: S.Model) -> nn.Module:
    size = _sizes(spec)
    return _hf(
        "GPT2LMHeadModel", "GPT2Config", vocab_size=size["vocab"], n_embd=size["dim"],
        n_layer=size["depth"], n_head=size["heads"], n_positions=1024, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def _encoder(name: str, config: str, spec: S.Model, **more: Any) -> nn.Module:
    size = _sizes(spec)
    return _hf(
        name, config, vocab_size=size["vocab"], hidden_size=size["dim"],
        num_hidden_layers=size["depth"], num_attention_heads=size["heads"],
        intermediate_size=4 * size["dim"], max_position_embeddings=512,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **more,
    )  # fmt: skip


def _bert(spec: S.Model) -> nn.Module:
    return _encoder("BertForMaskedLM", "BertConfig", spec)


def _deberta(spec: S.Model) -> nn.Module:
    return _encoder(
        "DebertaV2ForMaskedLM", "DebertaV2Config", spec, relative_attention=True,
        position_buckets=256, norm_rel_ebd="layer_norm", share_att_key=True, type_vocab_size=0,
        pos_att_type=["p2c", "c2p"], max_relative_positions=-1, position_biased_input=False,
    )  # fmt: skip


def _t5(spec: S.Model) -> nn.Module:
    size, feed = _sizes(spec), spec.stack.block[-1].branch
    assert isinstance(feed, S.FeedForward)
    return _hf(
        "T5ForConditionalGeneration", "T5Config", vocab_size=size["vocab"],
        d_model=size["dim"], d_kv=size["dim"] // size["heads"], d_ff=feed.hidden,
        num_layers=size["depth"], num_decoder_layers=size["depth"], num_heads=size["heads"],
        dropout_rate=0.0, decoder_start_token_id=0, use_cache=False,
    )  # fmt: skip


def _words(spec: S.Model, **head: Any) -> S.Model:
    """With a head over the vocabulary, as masked tokens are told."""
    return S.override(spec, "head", S.Vocabulary(tied=True, bias=True, dense=True, **head))


def _our_gpt2(**sizes: int) -> Callable[[bool], S.Model]:
    return lambda tiny: recipe("gpt2", length=1024, dropout=0.0, **(TINY if tiny else sizes))


def _our_bert(tiny: bool) -> S.Model:
    spec = recipe("bert", dropout=0.0, **({**TINY, "length": 512} if tiny else {}))
    return _words(spec, norm=S.LayerNorm(eps=1e-12))


def _our_deberta(tiny: bool) -> S.Model:
    spec = recipe("deberta-v3", dropout=0.0, **(TINY if tiny else {}))
    return _words(spec, norm=S.LayerNorm(eps=1e-7))


def _our_t5(tiny: bool) -> S.Model:
    base = {"dim": 768, "depth": 12, "heads": 12, "hidden": 3072}
    return recipe("t5", dropout=0.0, **({**TINY, "hidden": 64} if tiny else base))


FAMILIES = (
    Family("gpt2", _our_gpt2(), _gpt2, 32, 1024, hand=True, graph=True),
    Family("bert", _our_bert, _bert, 64, 512, masked=True, graph=True),
    Family("deberta-v3", _our_deberta, _deberta, 16, 512, masked=True),
    Family("t5", _our_t5, _t5, 16, 1024, paired=True),
    Family("gpt2-350m", _our_gpt2(dim=1024, depth=24, heads=16), _gpt2, 16, 1024, hand=True),
    Family(
        "gpt2-1.3b", _our_gpt2(dim=2048, depth=24, heads=16), _gpt2, 8, 1024, hand=True, float8=True
    ),
)


def ours(spec: S.Model, batch: Batch, device: torch.device, **more: Any) -> Step:
    """A step of a run: what the loop does with a batch, blocks compiled on a GPU."""
    gpu = device.type == "cuda"
    settings = Training(
        steps=10**9, batch=len(batch["labels"]), lr=1e-4, compile=gpu,
        precision="bfloat16" if gpu else "float32", **more,
    )  # fmt: skip
    objective = NextToken(cross=True)
    trainee = Trainee(build(spec).to(device).train(), objective)
    prepare(trainee, settings)
    stepper, turn = Stepper(alone(trainee), settings, device), [0]
    batches = [{name: ids.cpu().pin_memory() if gpu else ids for name, ids in batch.items()}]

    def step() -> None:
        turn[0] += 1
        stepper.run(turn[0], batches, 1.0, False, metrics=False)

    return step


def joined(step: Step) -> Step:
    """The same with one product for q, k and v and our kernels for GELU in compiled blocks."""

    def run() -> None:
        with changed(attention, JOINING=("cuda",)), changed(feedforward, FUSING=("cuda",)):
            step()

    return run


def peer(model: nn.Module, batch: Batch, device: torch.device, compiled: bool) -> Step:
    """A step of a peer: its loss under autocast, clipping, and a fused AdamW."""
    model = model.to(device).train()
    called: Any = torch.compile(model) if compiled else model
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = called(**batch)
        (out if isinstance(out, Tensor) else out.loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def many(step: Step, device: torch.device) -> Step:
    """Several steps, waited for."""

    def run() -> None:
        for _ in range(STEPS):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


def contestants(
    family: Family, spec: S.Model, batch: Batch, device: torch.device, compiled: bool
) -> dict[str, Callable[[], Step]]:
    """Those that race, each made when it is asked for."""
    found: dict[str, Callable[[], Step]] = {"anyformer": lambda: ours(spec, batch, device)}
    if family.graph and device.type == "cuda":
        found["anyformer, one graph"] = lambda: ours(spec, batch, device, graph=True)
        found["anyformer, joined"] = lambda: joined(ours(spec, batch, device))
    if family.float8 and device.type == "cuda":
        found["anyformer, float8"] = lambda: ours(spec, batch, device, float8=True)
    for ways in (False, True) if compiled else (False,):
        named = f"transformers{', compiled' if ways else ''}"
        found[named] = lambda ways=ways: peer(family.theirs(spec), batch, device, ways)
    if family.hand:
        gpu = device.type == "cuda"
        found[f"by hand{', compiled' if gpu else ''}"] = lambda: peer(
            Minimal(**_sizes(spec)), batch, device, gpu
        )
    return found


def rate(device: torch.device) -> float:
    """Operations a second of large products in bfloat16, measured."""
    a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(8):
        torch.cuda.synchronize()
        start = time.perf_counter()
        a @ a
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * 8192**3 / best


def _measured(family: Family, settings: Settings, roof: float | None, table: Table) -> None:
    device, tiny = torch.device(settings.device), settings.device == "cpu"
    torch.manual_seed(0)
    spec = family.ours(tiny)
    batch = family.batch(spec, settings.device, tiny)
    steps, memory = {}, {}
    for name, make in contestants(family, spec, batch, device, settings.compile).items():
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        steps[name] = many(make(), device)
        steps[name]()
        peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else 0
        memory[name] = peak / 2**30
    times = race(steps, settings.rounds)
    tokens = batch["labels"].numel() + (batch["input_ids"].numel() if family.paired else 0)
    work = 3 * count(spec, batch["labels"].shape[1]).flops * len(batch["labels"])
    for name, spent in times.items():
        each = statistics.median(spent) / STEPS
        ratio = interval([a / b for a, b in zip(spent, times["anyformer"], strict=True)])
        share = f"{work / each / roof:.0%}" if roof else "-"
        cells = [f"{tokens / each / 1e3:.0f}", f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})"]
        table.rows.append([family.name, name, *cells, share, f"{memory[name]:.1f}"])
    table.raw[family.name] = times


def families(settings: Settings) -> None:
    """Every family, or those named by --only."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(settings.threads)
    roof = rate(torch.device("cuda")) if settings.device == "cuda" else None
    head = ["family", "contestant", "thousand tokens/s", "their time / ours", "of rate", "GiB"]
    table = Table(f"Training steps, {settings.device}", head)
    for family in FAMILIES:
        if settings.only and family.name not in settings.only:
            continue
        if not settings.only and settings.device == "cpu" and family.name.startswith("gpt2-"):
            continue
        _measured(family, settings, roof, table)
        print(table.text(), flush=True)
        gc.collect()
    if roof:
        table.notes.append(f"{torch.cuda.get_device_name()}, products at {roof / 1e12:.0f} TFLOP/s")
    table.notes.append("no dropout; a step is forward, backward, clipping and AdamW")
    table.show(settings, f"{'h200' if roof else 'cpu'}_families")
