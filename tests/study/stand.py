"""What a study stands on, without data: enough for specs, matches and counts."""

from typing import cast

from anyformer.data.tokenizer import Tokenizer
from anyformer.objectives.registry import name_of
from anyformer.study import plan
from anyformer.study.nodes import Study
from anyformer.train.begin import Wish, _material, _plan, _with_context


class Sized:
    """Of a tokenizer its size, which is all that a spec takes from it."""

    def __init__(self, size: int):
        self.size = size

    def __len__(self) -> int:
        return self.size


def ground(study: Study, more: int = 0) -> plan.Ground:
    """What a study stands on, without reading anything; the vocabulary by so many larger."""
    wish = Wish(
        model=study.base,
        data=study.data,
        objective=study.objective,
        asks=plan._pairs(study.asks),
        context=study.length,
    )
    found = _plan(wish, None)
    material = _material(wish, name_of(found), None)
    size = 8000 if ":" in (study.tokenizer or "") else 120
    words = cast(Tokenizer, Sized(size + more))
    return plan.Ground(words, _with_context(found, material), material, {}, study.length)
