"""Every option of generation, under Hugging Face's names, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anyformer.errors import InputError

Decode = Callable[[list[int]], str]
COUNTS = {  # ints that may not be None, and their least value
    "max_new_tokens": 1,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
}
NAMED = {"top_k": 1, "pad_token_id": 0, "forced_eos_token_id": 0, "seed": 0}  # ints or None
NUMBERS = {  # numbers above 0: the greatest one, and whether they may be None
    "temperature": (float("inf"), False),
    "repetition_penalty": (float("inf"), False),
    "top_p": (1.0, True),
    "min_p": (1.0, True),
    "typical_p": (1.0, True),
    "entmax_alpha": (float("inf"), True),
}
DRAWN = ("temperature", "top_k", "top_p", "min_p", "typical_p", "entmax_alpha")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are chosen, the likeliest, drawn ones or by beams, and where texts end."""

    max_new_tokens: int = 20
    min_new_tokens: int = 0  # none of eos_token_id before
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int | None = None  # the k likeliest
    top_p: float | None = None  # the likeliest that together reach this probability (1904.09751)
    min_p: float | None = None  # those of this share of the likeliest one's at least (2407.01082)
    typical_p: float | None = None  # those of usual information that reach this (2202.00666)
    entmax_alpha: float | None = None  # α-entmax in place of softmax (2004.02644)
    repetition_penalty: float = 1.0  # divides logits of tokens that are there (1909.05858)
    no_repeat_ngram_size: int = 0  # no n tokens in a row twice
    bad_words_ids: Sequence[Sequence[int]] = ()  # rows of ids that are never written
    eos_token_id: int | Sequence[int] | None = None  # a row that wrote one of them is done
    pad_token_id: int | None = None  # fills up rows that are done; None: the first eos_token_id
    stop_strings: str | Sequence[str] = ()  # a row that wrote one of them is done; needs decode
    decode: Decode | None = None  # text of ids
    forced_bos_token_id: int | Sequence[int] | None = None  # the first new tokens
    forced_eos_token_id: int | None = None  # the last one, where max_new_tokens are written
    num_beams: int = 1
    length_penalty: float = 1.0  # beams: scores are divided by length to this power
    early_stopping: bool | Literal["never"] = False  # beams: done once there are num_beams texts
    num_return_sequences: int = 1
    seed: int | None = None  # None: torch's own random state

    def __post_init__(self) -> None:
        for name, low in (COUNTS | NAMED).items():
            value = getattr(self, name)
            if value is None and name in NAMED:
                continue
            if type(value) is not int or value < low:
                raise InputError(f"{name} must be an int of at least {low}, not {value!r}")
        if type(self.do_sample) is not bool:
            raise InputError(f"do_sample must be True or False, not {self.do_sample!r}")
        for name, (high, absent) in NUMBERS.items():
            _check_number(name, getattr(self, name), high, absent)
        if self.entmax_alpha is not None and self.entmax_alpha <= 1.0:
            raise InputError("entmax_alpha must be above 1: with 1 it is softmax, leave it out")
        self._check_ids()
        self._check_strings()
        self._check_together()

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that end a row."""
        return _ids("eos_token_id", self.eos_token_id)

    @property
    def forced(self) -> tuple[int, ...]:
        """The first new tokens, where they are given."""
        return _ids("forced_bos_token_id", self.forced_bos_token_id)

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings that end a row."""
        one = isinstance(self.stop_strings, str)
        return (self.stop_strings,) if one else tuple(self.stop_strings)  # type: ignore[return-value]

    @property
    def fill(self) -> int:
        """What stands behind the end of a row."""
        if self.pad_token_id is not None:
            return self.pad_token_id
        return self.ends[0] if self.ends else 0

    def check_vocab(self, vocab: int) -> None:
        """Raise where an id is beyond a model's vocabulary."""
        named: dict[str, Any] = {
            "eos_token_id": self.ends,
            "forced_bos_token_id": self.forced,
            "forced_eos_token_id": (self.forced_eos_token_id,),
            "pad_token_id": (self.pad_token_id,),
            "bad_words_ids": tuple(i for word in self.bad_words_ids for i in word),
        }
        for name, ids in named.items():
            for i in ids:
                if i is not None and i >= vocab:
                    raise InputError(f"{name} is {i}, outside 0..{vocab - 1}")

    def _check_ids(self) -> None:
        """Ids that are ints from 0 on, and words that are not empty."""
        assert self.ends is not None and self.forced is not None  # raise where they are none
        if len(self.forced) > self.max_new_tokens:
            raise InputError("forced_bos_token_id has more ids than max_new_tokens: ask for more")
        for word in self.bad_words_ids:
            if not _ids("bad_words_ids", word):
                raise InputError("bad_words_ids holds a word without ids: leave it out")

    def _check_strings(self) -> None:
        if any(not isinstance(text, str) or not text for text in self.stops):
            raise InputError("stop_strings must be strings that are not empty")
        if self.stops and not callable(self.decode):
            raise InputError("stop_strings need decode, a function that gives the text of ids")

    def _check_together(self) -> None:
        """Raise where options have no use beside the others."""
        if self.min_new_tokens > self.max_new_tokens:
            raise InputError("min_new_tokens is above max_new_tokens: lower it")
        unused = [n for n in DRAWN if getattr(self, n) not in (None, _default(n))]
        if unused and not self.do_sample:
            raise InputError(f"{', '.join(unused)} change what is drawn: set do_sample=True")
        if self.num_beams > 1:
            self._check_beams()
            return
        if self.early_stopping is not False or self.length_penalty != 1.0:
            raise InputError(
                "early_stopping and length_penalty are for beams: set num_beams above 1"
            )
        if self.num_return_sequences > 1 and not self.do_sample:
            raise InputError(
                "num_return_sequences: the likeliest token is one; set do_sample=True or num_beams"
            )

    def _check_beams(self) -> None:
        if self.do_sample:
            raise InputError(
                "num_beams takes the likeliest texts, do_sample draws them: leave one of them out; "
                "several drawn texts are num_return_sequences"
            )
        if self.num_return_sequences > self.num_beams:
            raise InputError("num_return_sequences is above num_beams: ask for more beams")
        if self.early_stopping not in (True, False, "never"):
            raise InputError("early_stopping must be True, False or 'never'")
        if not isinstance(self.length_penalty, (int, float)):
            raise InputError(f"length_penalty must be a number, not {self.length_penalty!r}")


def _default(name: str) -> Any:
    return Sampling.__dataclass_fields__[name].default


def _check_number(name: str, value: Any, high: float, absent: bool) -> None:
    if value is None and absent:
        return
    inside = isinstance(value, (int, float)) and 0.0 < value <= high and value != float("inf")
    if not inside or isinstance(value, bool):
        most = "" if high == float("inf") else f" and at most {high:g}"
        raise InputError(f"{name} must be a number above 0{most}, not {value!r}")


def _ids(name: str, value: Any) -> tuple[int, ...]:
    """One id or several as a tuple."""
    found = () if value is None else (value,) if isinstance(value, int) else tuple(value)
    for i in found:
        if type(i) is not int or i < 0:
            raise InputError(f"{name} must be an int of at least 0, or several, not {value!r}")
    return found
