"""The rules of recursion: what a loop needs of its stack, each with its reason and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anyformer.spec.faults import closes, of_stack, unsound
from anyformer.spec.loop import Exit, Loop, Route
from anyformer.spec.model import Model, Stack, Vocabulary
from anyformer.spec.rule import Rule
from anyformer.spec.schedule import Ring, ring, turns
from anyformer.spec.walk import selves


def of_loop(test: Callable[[Loop, Stack, Ring | None], bool]) -> Callable[[Model], Iterator[str]]:
    """The paths of the loops for which a test holds; stacks that can't be laid out have none."""

    def broken(stack: Stack, model: Model) -> bool:
        sound = stack.loop is not None and not unsound(stack, model)
        return sound and test(stack.loop, stack, ring(stack))  # type: ignore[arg-type]

    found = of_stack(broken)
    return lambda spec: (f"{path}.loop" for path in found(spec))


def _idle(loop: Loop, stack: Stack, found: Ring | None) -> bool:
    """What happens at rounds or turns where there are none."""
    by_round = loop.inject != "none" or loop.drawn != "fixed" or loop.window or loop.halt
    if by_round and (found is None or closes(stack)):
        return True
    by_turn = loop.step != "none" or loop.keys == "first"
    return by_turn and found is None and not any(turn for _, turn in turns(stack))


def _backwards(stack: Stack, model: Model) -> bool:
    """A loop in a stack that is run otherwise."""
    asked = isinstance(model.head, Vocabulary) and model.head.enhanced is not None
    return stack.loop is not None and (stack.reversible or asked)


def _empty(loop: Loop, _s: Stack, _r: Ring | None) -> bool:
    """Zeros that nothing is put into, at some position at least."""
    expert = isinstance(loop.halt, Route) and loop.halt.choice == "expert"
    return loop.start == "zeros" and (loop.inject == "none" or expert)


def _undrawn(loop: Loop, stack: Stack, found: Ring | None) -> bool:
    """Bounds of rounds that aren't drawn, or rounds that there are no weights for."""
    if loop.drawn == "fixed":
        return loop.mean is not None or loop.most is not None
    apart = bool(stack.own) or stack.lora is not None or loop.step == "learned"
    apart = apart or isinstance(loop.halt, Route)
    beyond = found is not None and (loop.most or 0) > found.rounds
    return (loop.mean is not None and loop.drawn == "uniform") or (beyond and apart)


def _keyless(loop: Loop, stack: Stack, _: Ring | None) -> bool:
    """Lent keys beside weights that would make others, or that couldn't be learned."""
    own = {"attention", "cross"} & {*stack.own}
    added = stack.lora is not None and {"k", "v"} & {*stack.lora.on}
    return loop.keys == "first" and bool(own or added or loop.window)


def _late(stack: Stack, model: Model) -> bool:
    """An exit with something behind it, or without words to answer with."""
    loop = stack.loop
    if loop is None or not isinstance(loop.halt, Exit) or unsound(stack, model):
        return False
    found = ring(stack)
    last = found is not None and found.end == stack.depth
    return not last or not isinstance(model.head, Vocabulary)


def _unrouted(loop: Loop, stack: Stack, found: Ring | None) -> bool:
    """Capacities that don't go with the rounds, or with routing by token."""
    if not isinstance(loop.halt, Route) or found is None:
        return False
    wanted = (0, found.rounds) if loop.halt.choice == "expert" else (0,)
    return len(loop.halt.capacity) not in wanted


def _foreseeing(loop: Loop, stack: Stack, _: Ring | None) -> bool:
    """Rounds that choose among later positions in a stack that sees none."""
    route = loop.halt
    looks = isinstance(route, Route) and route.choice == "expert" and not route.future
    return looks and any(a.causal for a in selves(stack))


LOOP_RULES: tuple[Rule, ...] = (
    Rule(
        "loop goes round",
        of_loop(_idle),
        "steps and lent keys need a block that runs again; injection, drawn rounds, a window and "
        "halting a schedule of rounds without norms or residuals around superblocks",
        "use Looped, Shared(unique=1) or Shared(order='cycle') with a depth that is a multiple of "
        "unique, or leave these fields of loop unset",
    ),
    Rule(
        "loop runs forwards",
        of_stack(_backwards),
        "a reversible stack and a last block that is asked twice have no loop",
        "set reversible=False and head.enhanced=None, or loop=None",
    ),
    Rule(
        "zeros are filled",
        of_loop(_empty),
        "a loop that starts from zeros sees its input by injection alone, and positions that "
        "choice='expert' leaves out of all rounds would stay zero",
        "set loop.inject and no choice='expert', or start='entered'",
    ),
    Rule(
        "window sees the input",
        of_loop(lambda loop, _s, _r: loop.window is not None and loop.inject == "none"),
        "where rounds aren't learned through, what is before the loop learns by injection alone",
        "set loop.inject, or window=None",
    ),
    Rule(
        "drawn rounds",
        of_loop(_undrawn),
        "mean and most bound rounds that are drawn (mean those of poisson), and rounds beyond the "
        "schedule's have no norms, LoRA, learned steps or routers of their own",
        "set drawn, leave mean or most unset, or give the schedule as many rounds",
    ),
    Rule(
        "keys of the first turn",
        of_loop(_keyless),
        "later turns that read the first one's keys and values have no use for weights of their "
        "own that make them, and a window would leave them without gradients",
        "leave attention and cross out of own, k and v out of lora.on and window unset, or "
        "set loop.keys='own'",
    ),
    Rule(
        "exit is the end",
        of_stack(_late),
        "an exit answers with words right behind a round, so nothing may follow the loop",
        "use a schedule without a coda and a Vocabulary head, or Act",
    ),
    Rule(
        "capacity by round",
        of_loop(_unrouted),
        "capacity is for choice='expert', one share for each round",
        "give as many as there are rounds, or none",
    ),
    Rule(
        "rounds choose along the row",
        of_loop(_foreseeing),
        "choice='expert' looks at all positions of a row in training, in a causal stack at later "
        "ones too; without training it doesn't",
        "set choice='token', or future=True to accept it",
    ),
)
