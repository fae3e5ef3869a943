"""Continue prompts one token at a time, the likeliest or a drawn one, with a key-value cache.

Letters: B batch, N positions of the prompt, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError, known_or_raise
from anyformer.model.inputs import position_limit
from anyformer.model.model import Model

SOURCES = (  # what a model may be given beside its prompt
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "encoder_hidden_states",
    "encoder_attention_mask",
    "pixel_values",
    "input_values",
)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen: the likeliest, or drawn from what temperature, top_k, top_p leave."""

    max_new_tokens: int = 20
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None  # the k likeliest
    top_p: float | None = None  # the likeliest that together reach this probability (1904.09751)
    eos_token_id: int | None = None  # a row that wrote it is done, and is filled up with it
    seed: int | None = None  # None: torch's own random state

    def __post_init__(self) -> None:
        for name, low in (("max_new_tokens", 1), ("top_k", 1), ("eos_token_id", 0), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < low):
                raise InputError(f"{name} must be an int of at least {low}, not {value!r}")
        if type(self.max_new_tokens) is not int or type(self.do_sample) is not bool:
            raise InputError("max_new_tokens must be an int, and do_sample True or False")
        self._check_number("temperature", float("inf"))
        self._check_number("top_p", 1.0)
        drawn = {"temperature": self.temperature != 1.0, "top_k": self.top_k, "top_p": self.top_p}
        unused = [name for name, given in drawn.items() if given]
        if unused and not self.do_sample:
            raise InputError(f"{', '.join(unused)} change what is drawn: set do_sample=True")

    def _check_number(self, name: str, high: float) -> None:
        value: Any = getattr(self, name)
        if value is None and name == "top_p":
            return
        if not isinstance(value, (int, float)) or not 0.0 < value <= high or value == float("inf"):
            most = "" if high == float("inf") else f" and at most {high:g}"
            raise InputError(f"{name} must be a number above 0{most}, not {value!r}")


@dataclass(frozen=True)
class Prompt:
    """What is continued: ids (B, N), and all arguments of the first call of the model."""

    ids: Tensor
    first: dict[str, Any]
    name: str  # of the ids among the model's arguments


@torch.no_grad()
def generate(
    model: Model, input_ids: Tensor | None = None, max_new_tokens: int = 20, **options: Any
) -> Tensor:
    """Continue prompts (B, N) -> (B, N + new), the prompt first; options are those of Sampling.

    Prompts of unequal length are padded on the left, with attention_mask. An encoder-decoder
    reads input_ids (or pixel_values, input_values) and continues decoder_input_ids. Generation
    ends early once every row has written eos_token_id.
    """
    names = [f.name for f in fields(Sampling)]
    for name in options:
        known_or_raise(name, [*names, *SOURCES], "option of generate", InputError)
    chosen = {name: value for name, value in options.items() if name in names}
    sampling = Sampling(max_new_tokens=max_new_tokens, **chosen)
    given = {k: v for k, v in options.items() if k not in chosen and v is not None}
    prompt = _prompt(model, input_ids, given)
    _check(model, prompt, sampling)
    with evaluating(model):
        return _continue(model, prompt, sampling)


def _prompt(model: Model, input_ids: Tensor | None, given: dict[str, Any]) -> Prompt:
    """The prompt of a call: the decoder's ids where there is an encoder, else the ids."""
    if model.encoder is None:
        if input_ids is None:
            raise InputError("generate needs input_ids, the prompt to continue")
        return Prompt(input_ids, {"input_ids": input_ids, **given}, "input_ids")
    if "decoder_input_ids" not in given:
        raise InputError(
            "an encoder-decoder continues decoder_input_ids: give them, such as its start id"
        )
    source = {} if input_ids is None else {"input_ids": input_ids}
    return Prompt(given["decoder_input_ids"], {**source, **given}, "decoder_input_ids")


def _check(model: Model, prompt: Prompt, sampling: Sampling) -> None:
    """Raise where a model can't continue a prompt, before anything is computed."""
    source, ids, name = model.spec.embed.source, prompt.ids, prompt.name
    if not isinstance(source, S.Tokens) or not isinstance(
        model.spec.head, S.Vocabulary | S.Adaptive
    ):
        raise InputError("generate needs a model that reads tokens and has a Vocabulary head")
    if not _causal(model.spec.stack):
        raise InputError("generate needs a causal model: this one's attention looks ahead")
    if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.numel() == 0:
        raise InputError(f"{name} must be ids of shape (batch, length), with one id a row at least")
    eos = sampling.eos_token_id
    if eos is not None and eos >= source.vocab:
        raise InputError(f"eos_token_id is {eos}, outside 0..{source.vocab - 1}")
    limit, asked = position_limit(model.spec), ids.shape[1] + sampling.max_new_tokens - 1
    if limit is not None and asked > limit:
        raise InputError(
            f"max_new_tokens={sampling.max_new_tokens} after {ids.shape[1]} ids needs {asked} "
            f"positions, but the model has {limit}: ask for fewer or shorten the prompt"
        )
    mask = prompt.first.get(name.replace("input_ids", "attention_mask"))
    if isinstance(mask, Tensor) and mask.shape == ids.shape and not bool(mask[:, -1].all()):
        raise InputError("attention_mask hides the last id of a prompt: pad prompts on the left")


def _causal(stack: S.Stack) -> bool:
    blocks = (stack.block, *stack.others)
    branches = [leaf for block in blocks for sub in block for leaf in sub.leaves]
    return all(b.causal or b.cross for b in branches if isinstance(b, S.Attention))


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


def _continue(model: Model, prompt: Prompt, sampling: Sampling) -> Tensor:
    ids, eos = prompt.ids, sampling.eos_token_id
    random = None
    if sampling.seed is not None:
        random = torch.Generator(ids.device).manual_seed(sampling.seed)
    done = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    out = model(**prompt.first, use_cache=True)
    for step in range(sampling.max_new_tokens):
        if step:
            out = model(**{prompt.name: ids[:, -1:]}, past_key_values=out.past_key_values)
        token = pick(_last(out.logits, step), sampling, random).to(ids.dtype)  # (B,)
        if eos is not None:
            token = token.masked_fill(done, eos)
            done = done | (token == eos)
        ids = torch.cat([ids, token[:, None]], 1)
        if eos is not None and bool(done.all()):
            break
    return ids


def _last(logits: Tensor, step: int) -> Tensor:
    """The logits (B, V) after the last position, in float32 at least; none of them NaN."""
    last = logits[:, -1].to(torch.promote_types(logits.dtype, torch.float32))
    if not bool(last.amax(-1).isfinite().all()):
        raise InputError(
            f"the model's logits for new token {step} hold NaN or infinity: look at its weights"
        )
    return last


def pick(logits: Tensor, sampling: Sampling, random: torch.Generator | None = None) -> Tensor:
    """The next token (B,) for logits (B, V)."""
    if not sampling.do_sample:
        return logits.argmax(-1)
    left = narrowed(logits / sampling.temperature, sampling.top_k, sampling.top_p)
    return torch.multinomial(left.softmax(-1), 1, generator=random)[:, 0]


def narrowed(logits: Tensor, top_k: int | None, top_p: float | None) -> Tensor:
    """Logits (B, V) with -inf for tokens beyond the k likeliest or beyond the share p."""
    if top_k is not None and top_k < logits.shape[-1]:
        threshold = logits.topk(top_k, -1).values[:, -1:]
        logits = logits.masked_fill(logits < threshold, float("-inf"))
    if top_p is None or top_p == 1.0:
        return logits
    ordered, order = logits.sort(-1, descending=True)
    share = ordered.softmax(-1)
    beyond = share.cumsum(-1) - share >= top_p  # the tokens before it reach p already
    return logits.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), float("-inf"))
