"""Tokens a second of generation, greedy, with each library's own cache: ours and the peers'.

A round is one whole call of generate, prompt and all, of each contestant in turn. Our decoder is
made once, before: laying weights out is no part of a call. On a CPU processor time stands beside
the clock, since other work may share the cores.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

import anyformer
from anyformer.generate import generate
from anyformer.generate.static import Static
from anyformer.model.model import Model, build
from benchmarks.runner import Settings, Table, interval

PROMPT, NEW = 16, 256
Work = Callable[[Tensor], object]  # a call of generate on a prompt (B, N)
Times = dict[str, list[tuple[float, float]]]  # seconds by the clock and of the processor


@dataclass(frozen=True)
class Size:
    """A GPT-2 or Llama shape."""

    name: str
    dim: int
    depth: int
    heads: int
    vocab: int
    length: int = 512
    kv_heads: int | None = None  # given: a Llama
    hidden: int | None = None

    def ours(self) -> Model:
        """Our model of this shape."""
        sizes = {"dim": self.dim, "depth": self.depth, "heads": self.heads, "vocab": self.vocab}
        if self.kv_heads is None:
            return build(anyformer.recipe("gpt2", length=self.length, **sizes)).eval()
        more = {"kv_heads": self.kv_heads, "hidden": self.hidden}
        return build(anyformer.recipe("llama", **sizes, **more)).eval()

    def huggingface(self) -> nn.Module:
        """Hugging Face's."""
        from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

        never: dict = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
        if self.kv_heads is None:
            config = GPT2Config(
                vocab_size=self.vocab, n_positions=self.length, n_embd=self.dim,
                n_layer=self.depth, n_head=self.heads, **never,
            )  # fmt: skip
            return GPT2LMHeadModel(config).eval()
        llama = LlamaConfig(
            vocab_size=self.vocab, hidden_size=self.dim, num_hidden_layers=self.depth,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads,
            intermediate_size=self.hidden, max_position_embeddings=self.length, **never,
        )  # fmt: skip
        return LlamaForCausalLM(llama).eval()

    def x_transformers(self) -> nn.Module:
        """x-transformers', with its wrapper for generation."""
        from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

        layers = Decoder(dim=self.dim, depth=self.depth, heads=self.heads)
        sizes = {"num_tokens": self.vocab, "max_seq_len": self.length}
        return AutoregressiveWrapper(TransformerWrapper(**sizes, attn_layers=layers)).eval()


SMALL = Size("6 layers, width 384", 384, 6, 6, 8000)
GPT2 = Size("GPT-2 124M", 768, 12, 12, 50257, 1024)
LLAMA = Size("Llama-shaped 1B", 2048, 16, 32, 128256, 1024, kv_heads=8, hidden=8192)


def ours(model: Model, **options: str | bool) -> Work:
    """Generate over a static cache."""
    fixed = Static(model, room=NEW, **options)  # type: ignore[arg-type]
    return lambda ids: generate(model, ids, NEW, decoder=fixed)


def huggingface(model: nn.Module, **options: str) -> Work:
    """Its generate, with the dynamic cache unless told otherwise."""
    more: dict = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW, **options}
    return lambda ids: model.generate(ids, attention_mask=torch.ones_like(ids), **more)  # type: ignore[operator]


def x_transformers(model: nn.Module) -> Work:
    """Its generate, greedy and cached."""
    return lambda ids: model.generate(ids, NEW, temperature=0.0, cache_kv=True)  # type: ignore[operator]


@torch.inference_mode()
def race(works: dict[str, Work], ids: Tensor, rounds: int) -> Times:
    """Seconds of each contestant in each round, in a new order each time, one round uncounted."""
    times: Times = {name: [] for name in works}
    order, dice = list(works), random.Random(0)
    wait = torch.cuda.synchronize if ids.is_cuda else lambda: None
    for turn in range(rounds + 1):
        dice.shuffle(order)
        for name in order:
            wait()
            clock, used = time.perf_counter(), time.process_time()
            works[name](ids)
            wait()
            if turn:
                spent = time.perf_counter() - clock, time.process_time() - used
                times[name].append(spent)
    return times


def rows_of(times: Times, names: list[str], rows: int) -> list[list[str]]:
    """Each contestant's tokens a second, spread, processor time, and how often ours beats it."""
    out = []
    for name, spent in times.items():
        clock = [c for c, _ in spent]
        speed = sorted(rows * NEW / c for c in clock)
        cells = [name, f"{statistics.median(speed):.0f}", f"{speed[0]:.0f} to {speed[-1]:.0f}"]
        cells.append(f"{statistics.median(u for _, u in spent) / NEW * 1e3:.2f}")
        for mine in names:
            by_clock = interval([c / m for (c, _), (m, _) in zip(spent, times[mine], strict=True)])
            by_use = statistics.median(
                u / m for (_, u), (_, m) in zip(spent, times[mine], strict=True)
            )
            cells.append(
                f"{by_clock[0]:.2f} ({by_clock[1]:.2f} to {by_clock[2]:.2f}); {by_use:.2f}"
            )
        out.append(cells)
    return out


HEAD = ["model", "batch", "dtype", "contestant", "tokens/s", "over rounds", "CPU ms/step"]


def _cpu(settings: Settings) -> None:
    torch.set_num_threads(settings.threads)
    table = Table("Generation on a CPU", [*HEAD, "their time / ours", "their time / our int8"])
    for dtype in settings.dtypes:
        for batch in (1, 16):
            if settings.only and f"{dtype}-{batch}" not in settings.only:
                continue
            torch.manual_seed(0)
            to = lambda model: model.to(getattr(torch, dtype))  # noqa: B023
            model = to(SMALL.ours())
            works = {
                "anyformer": ours(model),
                "anyformer int8": ours(model, weights="int8"),
                "transformers": huggingface(to(SMALL.huggingface())),
                "x-transformers": x_transformers(to(SMALL.x_transformers())),
            }
            ids = torch.randint(0, SMALL.vocab, (batch, PROMPT))
            times = race(works, ids, settings.rounds)
            start = [SMALL.name, str(batch), dtype]
            for row in rows_of(times, ["anyformer", "anyformer int8"], batch):
                table.rows.append([*start, *row])
            table.raw[f"{dtype} {batch}"] = times
            del works
            gc.collect()
    table.notes.append(f"prompt {PROMPT}, {NEW} new tokens, {settings.rounds} rounds")
    table.notes.append("ratios: median by the clock (95 % interval); by processor time")
    table.show(settings, "cpu_decode")


def bandwidth() -> float:
    """Bytes a second that a GPU reads and writes in a copy, measured."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    best = float("inf")
    for _ in range(10):
        torch.cuda.synchronize()
        start = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * source.numel() / best


def _cuda(settings: Settings) -> None:
    head = [*HEAD, "their time / ours", "share of limit"]
    table, roof = Table("Generation on a GPU", head), bandwidth()
    for size in (GPT2, LLAMA):
        for batch in (1, 64):
            if settings.only and f"{size.name.split()[0].lower()}-{batch}" not in settings.only:
                continue
            torch.manual_seed(0)
            to = lambda model: model.to("cuda", torch.bfloat16)
            model = to(size.ours())
            theirs = to(size.huggingface())
            works = {
                "anyformer": ours(model),
                "anyformer, plain sublayers": ours(model, fused=False),
                "transformers": huggingface(theirs),
                "transformers static": huggingface(theirs, cache_implementation="static"),
            }
            if size is GPT2 and find_spec("x_transformers") is not None:
                works["x-transformers"] = x_transformers(to(size.x_transformers()))
            ids = torch.randint(0, size.vocab, (batch, PROMPT), device="cuda")
            times = race(works, ids, settings.rounds)
            read = sum(p.numel() * p.element_size() for p in model.parameters())
            untied = model.head is not None and any(True for _ in model.head.parameters())
            table_bytes = model.token_table().numel() * 2 if untied else 0  # type: ignore[union-attr]
            for row in rows_of(times, ["anyformer"], batch):
                steps = float(row[1]) / batch
                share = f"{steps * (read - table_bytes) / roof:.0%}"
                table.rows.append([size.name, str(batch), "bfloat16", *row, share])
            table.raw[f"{size.name} {batch}"] = times
            print(table.text(), flush=True)  # a peer's compiling may take longer than one waits
            del works, model, theirs
            gc.collect()
            torch.cuda.empty_cache()
    table.notes.append(f"prompt {PROMPT}, {NEW} new tokens, {settings.rounds} rounds")
    table.notes.append(f"limit: weights read once a step, at the {roof / 1e12:.2f} TB/s of a copy")
    table.notes.append(torch.cuda.get_device_name())
    table.show(settings, "gpu_decode")


def decode(settings: Settings) -> None:
    """Generation on the device that the command line names."""
    warnings.simplefilter("ignore")
    _cuda(settings) if settings.device == "cuda" else _cpu(settings)
