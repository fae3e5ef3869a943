"""From names to a run: a recipe, texts, an objective and a tokenizer that fit each other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anyformer import spec as S
from anyformer.checkpoint import load
from anyformer.checkpoint.tokenizer import tokenizer as tokenizer_of
from anyformer.data.prepare import Progress
from anyformer.data.tokenizer import Tokenizer
from anyformer.data.train_tokenizer import MAKERS
from anyformer.data.train_tokenizer import train as train_tokenizer
from anyformer.errors import InputError, TrainError, known_or_raise
from anyformer.model.model import Model
from anyformer.objectives.registry import default_for, fit, name_of, objective
from anyformer.objectives.task import Task
from anyformer.recipes import recipe
from anyformer.recipes.registry import options
from anyformer.spec.node import names
from anyformer.train import ranks, run, score
from anyformer.train.material import Pair, RecordSource, TextSource, texts
from anyformer.train.settings import Settings

# Objective -> kind, style and size of the tokenizer that is trained where none is given.
TOKENIZERS = {
    **dict.fromkeys(("masked", "next-sentence", "sentence-order"), ("wordpiece", "bert")),
    **dict.fromkeys(("replaced-token", "distillation"), ("wordpiece", "bert")),
    **dict.fromkeys(("span-corruption", "text-to-text", "translation"), ("unigram", "t5")),
    "denoising": ("bpe", "bart"),
    "translation-lm": ("bpe", "roberta"),
}
ENDED = ("causal", "segments", "multi-token", "control-codes")  # a token ends each text
VOCAB = 4096
SEGMENTED = {"next-sentence": "sentence", "sentence-order": "sentence", "denoising": "sentence"}


@dataclass
class Wish:
    """What a run is asked to be."""

    model: str  # a recipe, a published size, or a folder to go on from
    options: dict[str, Any] = field(default_factory=dict[str, Any])  # of the recipe, or paths
    data: tuple[str, ...] = ("python-docs",)
    objective: str | None = None  # None: the recipe's own
    asks: dict[str, Any] = field(default_factory=dict[str, Any])  # settings of the objective
    tokenizer: str | None = None  # a folder, or a kind as bpe:8000; None: one that fits
    context: int | None = None  # tokens read at once; None: the model's, at most 128
    source: dict[str, Any] = field(default_factory=dict[str, Any])  # more of TextSource
    settings: Settings = Settings()
    progress: Progress | None = None  # hears how many bytes of text were prepared
    change: Callable[[S.Model], S.Model] | None = None  # what else is done to the recipe's spec


@dataclass
class Gathered:
    """All that a run needs, which fits together."""

    model: Model | S.Model
    plan: Any  # an objective as data
    words: Tokenizer
    material: TextSource | RecordSource
    samples: Pair
    settings: Settings


def gather(wish: Wish) -> Gathered:
    """Make or open all that is wished for: tokenizer, spec, objective and samples."""
    folder = Path(wish.model).is_dir()
    loaded = load(wish.model, override=wish.options or None) if folder else None
    plan = _plan(wish, loaded)
    material = _material(wish, name_of(plan), loaded)
    words = same(_tokenizer(wish, name_of(plan), material) if ranks.rank() == 0 else None)
    material = _ended(material, name_of(plan), words)
    plan = _with_context(plan, material)
    model = (
        loaded if loaded is not None else fitted(wish.model, wish.options, plan, words, material)
    )
    if wish.change is not None and not isinstance(model, Model):
        model = wish.change(model)
    spec = model.spec if isinstance(model, Model) else model
    samples = material.open(words, plan.bind(words, spec), wish.settings.seed, wish.progress)
    return Gathered(model, plan, words, material, samples, wish.settings)


def begin(found: Gathered | Wish, out: str | Path) -> run.Run:
    """Train what was gathered, or what is wished for, in a new folder."""
    if (Path(out) / run.RECORD).exists():
        raise TrainError(f"{out} holds a run: resume it, or give another folder")
    found = gather(found) if isinstance(found, Wish) else found
    source = S.to_dict(found.material)
    return run.train(
        found.model, found.samples, found.plan, out, found.settings, found.words, source=source
    )


def same(words: Tokenizer | None) -> Tokenizer:
    """The first rank's tokenizer on every rank: training one twice need not give the same."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if words is not None:
            words.save(home)
        files = ranks.from_first({file.name: file.read_bytes() for file in home.iterdir()})
        for file, content in files.items():
            (home / file).write_bytes(content)
        return words if words is not None else Tokenizer.load(home)


def again(folder: str | Path, changed: bool = False) -> run.Run:
    """Go on with a run that `begin` made."""
    home = Path(folder)
    record = run.read(home)
    if record["data"]["source"] is None:
        raise TrainError(f"{home} was begun from Python: resume it there, with its samples")
    spec, settings = S.from_dict(record["spec"]), S.from_dict(record["settings"])
    words = Tokenizer.load(home / run.TOKENIZER) if record["tokenizer"] else None
    bound = S.from_dict(record["objective"]).bind(words, spec)
    opened = lambda source: S.from_dict(source).open(words, bound, settings.seed)
    done = run.resume(home, open=opened, objective=bound, changed=changed)
    return score.finish(done) if isinstance(bound, Task) else done


def _plan(wish: Wish, loaded: Model | None) -> Any:
    if wish.objective is not None:
        return objective(wish.objective, **wish.asks)
    found = default_for(loaded.spec if loaded is not None else wish.model)
    for name, value in wish.asks.items():
        found = S.override(found, name, value)
    return found


def _material(wish: Wish, name: str, loaded: Model | None) -> TextSource | RecordSource:
    context = wish.context or wish.options.get("length") or _context(loaded)
    found: dict[str, Any] = {"segments": SEGMENTED.get(name), **wish.source}
    if name in ("translation", "translation-lm", "text-to-text"):
        if len(wish.data) != 1:
            raise InputError(f"{name} reads one set of records, not {len(wish.data)}")
        return RecordSource(what=wish.data[0], **wish.source)
    return TextSource(what=wish.data, context=context, **found)


def _ended(
    material: TextSource | RecordSource, name: str, words: Tokenizer
) -> TextSource | RecordSource:
    """The texts with a token behind each, where the objective learns to end them."""
    learns = isinstance(material, TextSource) and name in ENDED
    return S.override(material, "end", "eos") if learns and "eos" in words.roles else material


def _with_context(plan: Any, material: TextSource | RecordSource) -> Any:
    """The objective told how much is read at once, where it asks."""
    if not isinstance(material, TextSource) or "context" not in names(type(plan)):
        return plan
    return S.override(plan, "context", material.context) if plan.context is None else plan


def _context(loaded: Model | None) -> int:
    position = loaded.spec.embed.position if loaded is not None else None
    return min(position.length, 128) if isinstance(position, S.Learned) else 128


def _tokenizer(wish: Wish, name: str, material: TextSource | RecordSource) -> Tokenizer:
    if wish.tokenizer is None and Path(wish.model).is_dir():
        return tokenizer_of(wish.model)
    return words_for(wish.tokenizer, name, lambda: _lines(material))


def words_for(given: str | None, objective: str, lines: Callable[[], Iterable[str]]) -> Tokenizer:
    """The tokenizer of a folder, or one trained on texts, of a kind as bpe:8000 or one that fits.

    `objective` names what the model is trained with: its tokenizer has the tokens for that.
    """
    kind, style = TOKENIZERS.get(objective, ("bpe", "gpt"))
    vocab = VOCAB
    if given is not None:
        if Path(given).is_dir():
            return tokenizer_of(given)
        kind, vocab = _kind(given)
    return train_tokenizer(kind, lines(), vocab, style)


def _kind(word: str) -> tuple[str, int]:
    """The kind and size of a tokenizer in a word, as bpe:8000."""
    kind, _, size = word.partition(":")
    if kind not in MAKERS and ("/" in word or "." in word):
        raise InputError(f"{word} is no folder of a tokenizer, and no kind of one: as bpe:8000")
    known_or_raise(kind, MAKERS, "kind of tokenizer", InputError)
    if size and not size.isdigit():
        raise InputError(f"{word!r}: the size of a vocabulary is a number, as {kind}:8000")
    return kind, int(size) if size else (100_000 if kind in ("characters", "bytes") else VOCAB)


def _lines(material: TextSource | RecordSource) -> Any:
    if isinstance(material, TextSource):
        return texts(material)
    learn, _ = material.rows()
    return (str(v) for record in learn for k, v in record.items() if k in ("source", "target"))


def fitted(
    name: str,
    chosen: dict[str, Any],
    plan: Any,
    words: Tokenizer,
    material: TextSource | RecordSource,
) -> S.Model:
    """A recipe's spec with the tokenizer's vocabulary, the context and the objective's head."""
    known = options(name)
    given = dict(chosen)
    if "vocab" in known:
        given.setdefault("vocab", len(words))
    if "length" in known and isinstance(material, TextSource):
        given.setdefault("length", material.context)
    return S.check(fit(plan, recipe(name, **given)))
