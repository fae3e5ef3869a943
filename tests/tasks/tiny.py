"""Tiny models with their tokenizers, in folders, and texts of mixed lengths."""

import random
from functools import cache

import torch

import anyformer
from anyformer import spec as S
from anyformer.data.train_tokenizer import train as train_tokenizer

WORDS = (
    "a the film book day was very fine poor dull great lovely awful Anna met Bob in Paris and "
    "London; nobody, however, expected such weather: rain on Monday, été again. unhappiness"
).split()
CORPUS = [" ".join(WORDS)] * 40
SMALL = {"dim": 16, "depth": 2, "heads": 2}


@cache
def words(style):
    """A small tokenizer of a style."""
    kind = {"bert": "wordpiece", "gpt": "bpe", "roberta": "bpe", "t5": "unigram"}[style]
    size = {"wordpiece": 300, "bpe": 600, "unigram": 200}[kind]
    return train_tokenizer(kind, CORPUS, size, style)


def texts(count, low=2, high=30, seed=0):
    """Texts of mixed lengths."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(low, high))) for _ in range(count)]


def built(recipe, head, style=None, seed=0, **options):
    """A model with drawn weights that show every part."""
    tokens = {} if style is None else {"vocab": len(words(style))}
    spec = anyformer.recipe(recipe, **{**SMALL, **tokens, **options})
    spec = spec if head is None else S.override(spec, "head", head)
    torch.manual_seed(seed)
    model = anyformer.build(S.check(spec)).eval()
    drawn = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=drawn) * 0.2)
    return model


def folder(path, model, style=None):
    """A model and its tokenizer in a folder."""
    model.save_pretrained(path)
    if style is not None:
        words(style).save(path)
    return str(path)
