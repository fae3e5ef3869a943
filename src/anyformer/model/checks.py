"""What may not stand together in one call: nothing is accepted and ignored.

Letters: B batch, N positions, M positions of the context.
"""

from __future__ import annotations

from torch import Tensor

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model.inputs import Inputs, Sequence, readable, shaped
from anyformer.parts.state import Past
from anyformer.spec.walk import looks_back, selves

IGNORED = -100  # labels that count for nothing

SOURCE = (  # what an encoder reads, where it has to run
    "input_ids",
    "inputs_embeds",
    "input_values",
    "pixel_values",
    "token_type_ids",
    "langs",
    "position_ids",
    "document_ids",
    "prefix_lengths",
)
CONTEXT = ("encoder_hidden_states", "encoder_attention_mask")
TARGET = ("decoder_input_ids", "decoder_attention_mask")


def check_call(spec: S.Model, given: Inputs) -> None:
    """Raise where arguments contradict the model or each other."""
    _check_past(spec, given)
    _check_sides(spec, given)
    reads = spec if spec.encoder is None else spec.encoder
    if given.prefix_lengths is not None and not any(a.causal for a in selves(reads.stack)):
        raise InputError("prefix_lengths are for causal attention: every position here sees all")
    if given.document_ids is not None and (given.use_cache or given.return_mems):
        raise InputError("document_ids don't go with use_cache or return_mems: they would be lost")
    asks = isinstance(spec.head, S.Span) and spec.head.token is not None
    if asks and given.document_ids is not None:
        raise InputError("document_ids don't go with head.token, which ends one question a row")
    _check_kept(spec, given)
    _check_targets(spec, given)
    if given.output_hidden_states and spec.stack.reversible:
        raise InputError("output_hidden_states: a reversible stack keeps no hidden states")


def _check_kept(spec: S.Model, given: Inputs) -> None:
    """Raise unless the logits of the last positions alone are asked of a head that has them."""
    if not given.logits_to_keep:
        return
    if type(given.logits_to_keep) is not int or given.logits_to_keep < 0:
        raise InputError(
            f"logits_to_keep must be an int of at least 0, not {given.logits_to_keep!r}"
        )
    if not isinstance(spec.head, S.Vocabulary | S.Adaptive):
        raise InputError("logits_to_keep is for heads of a vocabulary: leave it out")
    if given.labels is not None:
        raise InputError("logits_to_keep and labels don't go together: the loss needs all logits")


def _check_targets(spec: S.Model, given: Inputs) -> None:
    """Raise unless targets are asked of a head over a vocabulary, and nothing else of it."""
    if given.targets is None:
        if given.targets_at is not None:
            raise InputError("targets_at says where targets are asked: give targets too")
        return
    if not isinstance(spec.head, S.Vocabulary):
        raise InputError("targets are for the head Vocabulary: take labels, or the logits")
    if given.labels is not None or given.logits_to_keep:
        raise InputError("targets don't go with labels or logits_to_keep: give one of them")
    x = given.input_ids if spec.encoder is None else given.decoder_input_ids
    if x is not None and given.targets.shape != x.shape:
        shapes = tuple(given.targets.shape), tuple(x.shape)
        raise InputError(f"targets of shape {shapes[0]} don't go with ids of shape {shapes[1]}")


def _check_past(spec: S.Model, given: Inputs) -> None:
    segments = given.mems is not None or given.return_mems
    if segments and (given.past_key_values is not None or given.use_cache):
        raise InputError("pass either past_key_values or mems: a cache or segment memories")
    if segments and not spec.stack.recurrence and given.mem_len is None:
        raise InputError(
            "mems: this model has no segment memory; set stack.recurrence in its spec, or give "
            "mem_len"
        )
    _check_length(spec, given)
    if given.past_key_values is not None and not given.past_key_values.is_cache:
        raise InputError("past_key_values are segment memories: pass them as mems")
    if given.mems is not None and given.mems.is_cache:
        raise InputError("mems are a cache: pass it as past_key_values")


def _check_length(spec: S.Model, given: Inputs) -> None:
    """Raise where the length of a memory is no number, or has nothing to be the length of."""
    length, limit = given.mem_len, spec.stack.recurrence
    if length is not None:
        if type(length) is not int or length < 0:
            raise InputError(f"mem_len must be an int of at least 0, not {length!r}")
        if length and not looks_back(spec.stack):
            raise InputError("mem_len: memory of earlier segments is for causal models")
        limit = length
    if given.same_length and not limit:
        raise InputError("same_length sees mem_len keys, which is 0: give mem_len")
    if given.same_length and given.past_key_values is not None:
        raise InputError("same_length is about mems: a cache remembers all")


def _check_sides(spec: S.Model, given: Inputs) -> None:
    """Refuse arguments of a side that the model has not, or that has done its work."""
    crossed = any(b.cross for b in _attentions(spec.stack))
    known = given.past_key_values is not None and given.past_key_values.context is not None
    if spec.encoder is None:
        _refuse(given, TARGET, "this model has no encoder: its own sequence is the main input")
        if not crossed:
            _refuse(given, CONTEXT, "this model has no cross-attention")
        elif not known and given.encoder_hidden_states is None and _must_read(spec.stack):
            raise InputError("cross-attention has nothing to read: pass encoder_hidden_states")
    elif given.encoder_hidden_states is not None:
        _refuse(given, SOURCE, "encoder_hidden_states are given, so the encoder doesn't run")
        if given.encoder_attention_mask is not None:
            _refuse(given, ("attention_mask",), "encoder_attention_mask is given in its place")
    elif not known:
        _refuse(given, CONTEXT[1:], "the encoder runs: its mask is attention_mask")
    if known:
        done = CONTEXT if spec.encoder is None else (*SOURCE, *CONTEXT, "attention_mask")
        _refuse(given, done, "the cache holds the encoder's output already")


def _refuse(given: Inputs, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if getattr(given, name) is not None:
            raise InputError(f"leave {name} out: {reason}")


def check_context(spec: S.Model, context: Tensor | None, mask: Tensor | None, rows: int) -> None:
    """Raise unless a context is floats (B, M, d) that cross-attention can read, with its mask."""
    if context is None:
        if mask is not None:
            raise InputError("encoder_attention_mask needs encoder_hidden_states beside it")
        return
    widths = [b.context or spec.dim for b in _attentions(spec.stack) if b.cross]
    if spec.bridge and spec.encoder is not None:
        widths = [spec.encoder.dim]
    fits = context.dim() == 3 and context.is_floating_point() and context.shape[1] > 0
    if not fits or any(width != context.shape[-1] for width in widths):
        raise InputError(
            f"encoder_hidden_states must be floats of shape (batch, length, {widths[0]}), "
            f"not {context.dtype} {tuple(context.shape)}"
        )
    if context.shape[0] != rows:
        raise InputError(f"the input has {rows} rows, but encoder_hidden_states {context.shape[0]}")
    shaped("encoder_attention_mask", mask, [(rows, context.shape[1])])


def check_memory(past: Past | None, rows: int) -> None:
    """Raise where what is remembered has another number of rows than the input."""
    if past is None:
        return
    kept = [*past.hidden.values(), *(k for k, _ in past.kv.values())]
    if kept and kept[0].shape[0] != rows:
        name = "past_key_values" if past.is_cache else "mems"
        raise InputError(f"the input has {rows} rows, but {name} remember {kept[0].shape[0]}")


def check_labels(spec: S.Model, seq: Sequence, given: Inputs, choices: int) -> None:
    """Raise unless labels fit the logits that the model's head will give."""
    _check_span(spec, seq, given)
    _check_pair(spec, seq, given)
    _check_choice(spec, seq, given, choices)
    _check_hidden(spec, given)
    _check_beams(spec, seq, given)
    labels = given.labels
    if labels is None:
        return
    if isinstance(spec.head, S.Classes) and spec.head.answers != "one":
        return _check_numbers(labels, seq.x.shape[0], spec.head.count)
    shape, count = _logits(spec, seq, choices)
    if tuple(labels.shape) != shape or labels.is_floating_point():
        raise InputError(
            f"labels must be integers of shape {shape}, not {labels.dtype} {tuple(labels.shape)}"
        )
    if predicts_next(spec) and shape[-1] < 2:
        raise InputError("labels of one position have no next token: give two positions at least")
    if readable(labels):
        bad = labels[((labels < 0) | (labels >= count)) & (labels != IGNORED)]
        if bad.numel():
            raise InputError(f"labels hold {int(bad[0])}, outside 0..{count - 1} and not {IGNORED}")


def _check_numbers(labels: Tensor, rows: int, count: int) -> None:
    """Labels (B, C) of zeros and ones or any numbers; (B,) will do for one class."""
    shapes = [(rows, count), (rows,)] if count == 1 else [(rows, count)]
    if tuple(labels.shape) not in shapes or not labels.is_floating_point():
        raise InputError(
            f"labels must be floats of shape {shapes[0]}, not {labels.dtype} {tuple(labels.shape)}"
        )


def _check_span(spec: S.Model, seq: Sequence, given: Inputs) -> None:
    ends = {n: getattr(given, n) for n in ("start_positions", "end_positions")}
    asked = isinstance(spec.head, S.Span | S.Beams)
    if asked and given.labels is not None:
        raise InputError("labels: this model's answers are start_positions and end_positions")
    if not asked:
        return _refuse(given, tuple(ends), "this model has no Span head")
    if sum(value is None for value in ends.values()) == 1:
        raise InputError("start_positions and end_positions go together: pass both")
    for name, value in ends.items():
        shaped(name, value, [(seq.x.shape[0],)])
        if value is not None and readable(value) and bool((value < 0).any()):
            raise InputError(f"{name} hold {int(value.min())}: they start at 0")


def _check_pair(spec: S.Model, seq: Sequence, given: Inputs) -> None:
    """Labels (B,) of two classes for the question that a Pretraining head asks, no others."""
    for name, asks in (("next_sentence_label", "next"), ("sentence_order_label", "order")):
        value = getattr(given, name)
        if not isinstance(spec.head, S.Pretraining) or spec.head.asks != asks:
            _refuse(given, (name,), f"this model has no Pretraining head with asks={asks!r}")
        shaped(name, value, [(seq.x.shape[0],)])
        if value is not None and readable(value) and bool(((value < 0) | (value > 1)).any()):
            raise InputError(f"{name} holds 0 and 1 alone")


def _check_choice(spec: S.Model, seq: Sequence, given: Inputs, choices: int) -> None:
    """Positions (B·C,) inside their sequences and labels (B,) of choices, for a Double head."""
    if not isinstance(spec.head, S.Double):
        return _refuse(given, ("mc_token_ids", "mc_labels"), "this model has no Double head")
    rows, length = seq.x.shape[:2]
    shaped("mc_token_ids", given.mc_token_ids, [(rows,)])
    shaped("mc_labels", given.mc_labels, [(rows // choices,)])
    _check_below("mc_token_ids", given.mc_token_ids, length)
    _check_below("mc_labels", given.mc_labels, choices)


def _check_below(name: str, value: Tensor | None, count: int) -> None:
    if value is None or not readable(value):
        return
    bad = value[(value < 0) | (value >= count)]
    if bad.numel():
        raise InputError(f"{name} hold {int(bad[0])}, outside 0..{count - 1}")


def _check_hidden(spec: S.Model, given: Inputs) -> None:
    """Booleans (B, patches), where a head that restores the image gives patches of its size."""
    source, image = spec.embed.source, given.pixel_values
    if not isinstance(spec.head, S.Pixels) or not isinstance(source, S.Patches) or image is None:
        return _refuse(given, ("bool_masked_pos",), "this model has no Pixels head")
    patches = (source.image // source.patch) ** 2
    shaped("bool_masked_pos", given.bool_masked_pos, [(image.shape[0], patches)])
    if spec.head.stride not in (None, source.patch):
        reason = "the image comes back in another size: set head.stride to None in the spec"
        _refuse(given, ("bool_masked_pos",), reason)


def _check_beams(spec: S.Model, seq: Sequence, given: Inputs) -> None:
    """Positions inside the row, a mask (B, N) and labels (B,), and room for the beams."""
    head, names = spec.head, ("cls_index", "is_impossible", "p_mask")
    if not isinstance(head, S.Beams):
        return _refuse(given, names, "this model has no Beams head")
    rows, length = seq.x.shape[:2]
    for name in ("start_positions", "end_positions", "cls_index"):
        shaped(name, getattr(given, name), [(rows,)])
        _check_below(name, getattr(given, name), length)
    for name, shape in (("is_impossible", (rows,)), ("p_mask", (rows, length))):
        value: Tensor | None = getattr(given, name)
        shaped(name, None if value is None else value.bool(), [shape])
    if given.is_impossible is not None and (
        given.cls_index is None or given.start_positions is None
    ):
        raise InputError("is_impossible goes with start_positions, end_positions and cls_index")
    if given.start_positions is None and length < max(head.starts, head.ends):
        raise InputError(
            f"{seq.name} have {length} positions, but head.starts and head.ends ask for "
            f"{head.starts} and {head.ends} of them"
        )


def _logits(spec: S.Model, seq: Sequence, choices: int) -> tuple[tuple[int, ...], int]:
    """The shape of the labels that a model's logits answer, and the number of their classes."""
    head, source, rows = spec.head, spec.embed.source, seq.x.shape[0]
    if isinstance(head, S.Classes):
        return (rows,), head.count
    if isinstance(head, S.Choices):
        return (rows // choices,), choices
    length = seq.x.shape[1]
    if isinstance(head, S.Double) and isinstance(source, S.Tokens):
        return (rows // choices, choices, length), source.vocab
    if isinstance(source, S.Patches):
        length = (source.image // source.patch) ** 2 + source.cls
    if isinstance(head, S.Vocabulary | S.Adaptive | S.Pretraining) and isinstance(source, S.Tokens):
        return (rows, length), source.vocab
    if isinstance(head, S.Project | S.Detect):
        return (rows, length), head.size if isinstance(head, S.Project) else 2
    raise InputError("labels need a head with logits: this model has none")


def predicts_next(spec: S.Model) -> bool:
    """Whether labels are those of the next position: a causal model without encoder."""
    causal = looks_back(spec.stack)
    head = spec.head.tokens if isinstance(spec.head, S.Double) else spec.head
    shifts = isinstance(head, S.Vocabulary) and head.shift
    shifts = shifts or isinstance(head, S.Adaptive)
    return spec.encoder is None and causal and shifts


def _attentions(stack: S.Stack) -> list[S.Attention]:
    blocks = (stack.block, *stack.others)
    branches = [leaf for block in blocks for sub in block for leaf in sub.leaves]
    return [b for b in branches if isinstance(b, S.Attention)]


def _must_read(stack: S.Stack) -> bool:
    return any(b.cross and not b.optional for b in _attentions(stack))
