"""Continue prompts one token at a time.

Letters: B rows, N positions so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from anyformer.errors import InputError, known_or_raise
from anyformer.generate.beam import search
from anyformer.generate.choice import Choice, Kind, choose, decoder_of
from anyformer.generate.decoder import Decoder, expanded
from anyformer.generate.draw import Numbers, draw
from anyformer.generate.narrow import probabilities
from anyformer.generate.options import Sampling
from anyformer.generate.plain import plain, written
from anyformer.generate.process import Process
from anyformer.generate.prompt import SOURCES, Ids, Prompt, apart, check_prompt, prompt_of
from anyformer.generate.speculative import Draft, speculated
from anyformer.generate.static import Static
from anyformer.generate.stop import Stop
from anyformer.generate.text import Text, Watch, wide
from anyformer.model.model import Model
from anyformer.spec import Tokens

NAMES = tuple(f.name for f in fields(Sampling))
BESIDE = ("decoder_start_token_id", "prefill", *SOURCES)
EVERY = 16  # steps between looks at what a GPU has written, each of which waits for it


@dataclass(frozen=True)
class Step:
    """One new token of each row, whether it belongs to the row's text, and whether that is done."""

    tokens: Tensor  # (B,); what fills up rows that were done
    fresh: Tensor  # (B,) True for tokens of a text
    done: Tensor  # (B,) True for rows that end here, or ended before


@torch.no_grad()
def generate(
    model: Model,
    input_ids: Ids | None = None,
    max_new_tokens: int = 20,
    decoder: Decoder | Kind | None = None,
    draft: Draft | Model | None = None,
    **options: Any,
) -> Tensor:
    """Continue prompts (B, N) -> (B, N + new), the prompt first; options are those of Sampling.

    Prompts of unequal length are lists of ids, or padded on the left with attention_mask. An
    encoder-decoder reads input_ids (or pixel_values, input_values) and continues
    decoder_input_ids, or its start id. Generation ends early once every row is done. With
    num_return_sequences, the sequences of a prompt follow each other. A draft is a smaller model
    that guesses ahead; the texts are the same. A decoder is "static", "growing" or one that was
    made; without one, `which` says what is taken, and why.
    """
    prompt, sampling = _asked(model, input_ids, max_new_tokens, options)
    if draft is not None:
        if decoder is not None:
            raise InputError("a draft goes with caches of its own: leave decoder out")
        draft = Draft(draft) if isinstance(draft, Model) else draft
        draft.check(model, prompt, sampling)
        with evaluating(model), evaluating(draft.model):
            return speculated(model, draft, prompt, sampling)
    parts = [prompt]
    if decoder is None or isinstance(decoder, str):
        parts = apart(model.spec, prompt)
        decoder = decoder_of(model, prompt, sampling, decoder)
    with evaluating(model):
        found = [_continued(decoder, part, sampling) for part in parts]
    longest = max(new.shape[1] for new in found)
    filled = [F.pad(new, (0, longest - new.shape[1]), value=sampling.fill) for new in found]
    new = torch.cat(filled)
    return torch.cat([prompt.ids.repeat_interleave(sampling.num_return_sequences, 0), new], 1)


def _every(device: torch.device, sampling: Sampling) -> int:
    """Steps between looks at what was written; strings are looked for at each."""
    return 1 if device.type == "cpu" or sampling.stops else EVERY


def _continued(decoder: Decoder, prompt: Prompt, sampling: Sampling) -> Tensor:
    """New tokens (B·sequences, new) of prompts."""
    if sampling.num_beams > 1:
        return search(decoder, prompt, sampling)
    if isinstance(decoder, Static) and plain(sampling):
        return written(decoder, prompt, sampling)
    steps = list(_steps(decoder, prompt, sampling, _every(prompt.ids.device, sampling)))
    ended = torch.stack([step.done for step in steps]).all(1)  # (steps,)
    length = min(len(steps), int((~ended).sum()) + 1)
    return torch.stack([step.tokens for step in steps[:length]], 1)


@torch.no_grad()
def stream(
    model: Model,
    input_ids: Ids | None = None,
    max_new_tokens: int = 20,
    decoder: Decoder | Kind | None = None,
    **options: Any,
) -> Iterator[Step]:
    """Continue prompts as `generate` does, a Step as soon as each token of all rows is chosen.

    The model stays in evaluation mode until the last step, or until the iterator is closed.
    """
    prompt, sampling = _asked(model, input_ids, max_new_tokens, options)
    if sampling.num_beams > 1:
        raise InputError("beams are known at the end only: leave num_beams out, or use generate")
    if decoder is None or isinstance(decoder, str):
        decoder = decoder_of(model, prompt, sampling, decoder)
    with evaluating(model):
        yield from _steps(decoder, prompt, sampling, 1)


def which(
    model: Model, input_ids: Ids | None = None, max_new_tokens: int = 20, **options: Any
) -> Choice:
    """The decoder that `generate` or `stream` would take now, and why; nothing is written."""
    return choose(model, *_asked(model, input_ids, max_new_tokens, options))


def _asked(
    model: Model, input_ids: Ids | None, most: int, options: dict[str, Any]
) -> tuple[Prompt, Sampling]:
    """The prompt and the options of a call, checked."""
    for name in options:
        known_or_raise(name, [*NAMES, *BESIDE], "option of generate", InputError)
    chosen = {name: value for name, value in options.items() if name in NAMES}
    sampling = Sampling(max_new_tokens=most, **chosen)
    given = {name: value for name, value in options.items() if name in SOURCES}
    start = options.get("decoder_start_token_id")
    prompt = prompt_of(model, input_ids, given, start, sampling.fill)
    prompt = replace(prompt, prefill=options.get("prefill"))
    check_prompt(model, prompt, sampling.max_new_tokens)
    assert isinstance(model.spec.embed.source, Tokens)
    sampling.check_vocab(model.spec.embed.source.vocab)
    return prompt, sampling


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode within, and afterwards each module in the mode that it had."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _steps(decoder: Decoder, prompt: Prompt, sampling: Sampling, every: int) -> Iterator[Step]:
    """The loop: logits, what options make of them, a token, and whether rows are done."""
    copies, device = sampling.num_return_sequences, prompt.ids.device
    logits = expanded(decoder, decoder.start(prompt), copies)
    text, watch = Text(prompt, copies, sampling.max_new_tokens), Watch()
    process, stop = Process(sampling, device), Stop(sampling, device)
    numbers = None
    if sampling.do_sample:
        numbers = Numbers(sampling.seed, len(logits), copies, device)
    done = torch.zeros(len(logits), dtype=torch.bool, device=device)
    for step in range(sampling.max_new_tokens):
        if step:
            logits = decoder.step(text.last)
        scores = process(wide(logits), text.ids, step)
        watch.see(logits, scores)
        token = pick(scores, sampling, None if numbers is None else numbers.at(step))
        fresh, token = ~done, token.masked_fill(done, sampling.fill)
        text.add(token)
        done = done | stop(text.new)
        looks = (step + 1) % every == 0 or step + 1 == sampling.max_new_tokens
        if looks:
            watch.look()
        yield Step(text.last, fresh, done)
        if looks and stop.can and bool(done.all()):
            return


def pick(scores: Tensor, sampling: Sampling, number: Tensor | None) -> Tensor:
    """The next token (B,) for logits (B, V): the likeliest, or drawn by a number (B,)."""
    return scores.argmax(-1) if number is None else draw(probabilities(scores, sampling), number)
