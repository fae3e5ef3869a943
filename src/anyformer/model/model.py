"""Whole models: embed, stack, head, and an encoder where the stack is a decoder."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from anyformer import spec as S
from anyformer.errors import InputError
from anyformer.model import begin
from anyformer.model.beams import Beams
from anyformer.model.checks import (
    check_call,
    check_context,
    check_labels,
    check_memory,
)
from anyformer.model.choices import flatten, unflatten
from anyformer.model.embed import Embed
from anyformer.model.extra import joined, with_extra
from anyformer.model.heads import Adaptive, Double, Pixels, Pooler, Pretraining, Span, Vocabulary
from anyformer.model.inputs import (
    Inputs,
    Sequence,
    check_sequence,
    read,
    signed,
    source_of,
    target_of,
)
from anyformer.model.loss import choice_loss, loss_of
from anyformer.model.output import Output
from anyformer.model.pool import pooled, typed
from anyformer.model.room import check_room
from anyformer.model.shift import shift_labels
from anyformer.model.stack import Block, Stack
from anyformer.parts import build as build_part
from anyformer.parts.init import initialise
from anyformer.parts.state import Call, Past
from anyformer.spec.walk import as_read

NOTHING = Inputs()


class Model(nn.Module):
    """A model as its spec says; called with Hugging Face's argument names, it returns an Output."""

    def __init__(self, spec: S.Model, *, own_tokens: bool = True, stack: Stack | None = None):
        super().__init__()
        self.spec = spec
        self.origin: object | None = None  # where it was loaded from, for saving it back
        self.report: object | None = None  # what a change of its spec did to its weights
        self.embed = Embed(spec.embed, spec.dim, own_tokens)
        self.stack = Stack(spec.stack, spec.dim) if stack is None else stack
        self.head = build_part(spec.head, as_read(spec)) if spec.head is not None else None
        self.encoder = None
        if spec.encoder is not None:
            self.encoder = Model(spec.encoder, own_tokens=not spec.share_tokens)
        self.bridge = None
        if spec.bridge and spec.encoder is not None:
            self.bridge = nn.Linear(spec.encoder.dim, spec.dim)
        blocks = len(self.stack.schedule)
        for new in (self.embed, self.stack if stack is None else None, self.head, self.bridge):
            if new is not None:  # the encoder has drawn its own weights, a stack that is given too
                initialise(new, spec.init, spec.dim, blocks)

    @signed("labels")
    def forward(self, input_ids: Tensor | None = None, **named: Any) -> Any:
        """Read one batch into an Output; see anyformer.model.inputs.Inputs for the arguments."""
        given = shift_labels(self.spec, read(input_ids, named))
        given, choices = flatten(self.spec, given)
        check_call(self.spec, given)
        seq = source_of(self.spec, given) if self.encoder is None else target_of(given)
        check_sequence(self.spec, seq, _past(given))
        check_memory(_past(given), seq.x.shape[0])
        check_labels(self.spec, seq, given, choices)
        seq = typed(self.spec.head, seq, self.spec.embed.types)
        context, context_keep, extra = self._context(given, seq.x.shape[0])
        out = self._decode(seq, given, context, context_keep)
        out.extra = joined(out.extra, extra)
        unflatten(self.spec, out, choices)
        out.loss, out.mc_loss = loss_of(self.spec, out, given), choice_loss(out, given)
        if self.training and out.extra is not None:
            out.loss = with_extra(self.spec, out, given)
        return out.to_tuple() if given.return_dict is False else out

    def _context(
        self, given: Inputs, rows: int
    ) -> tuple[Tensor | None, Tensor | None, dict[str, Tensor] | None]:
        """The sequence that cross-attention reads, where it is real, what it adds to the loss."""
        past, mask = given.past_key_values, given.encoder_attention_mask
        if past is not None and past.context is not None:
            return past.context, past.context_keep, None
        if self.encoder is None or given.encoder_hidden_states is not None:
            if mask is None and self.encoder is not None:
                mask = given.attention_mask
            check_context(self.spec, given.encoder_hidden_states, mask, rows)
            return given.encoder_hidden_states, _hiding(mask), None
        seq = source_of(self.encoder.spec, given)
        check_sequence(self.encoder.spec, seq, None)
        if seq.x.shape[0] != rows:
            raise InputError(f"{seq.name} have {seq.x.shape[0]} rows, decoder_input_ids {rows}")
        out = self.encoder._decode(seq, Inputs(), None, None, self.token_table())
        return out.last_hidden_state, _hiding(seq.mask), out.extra

    def token_table(self) -> Tensor | None:
        """The token embeddings (V, E), where this model has its own."""
        return self.embed.token.weight if self.embed.token is not None else None

    def _decode(
        self,
        seq: Sequence,
        given: Inputs,
        context: Tensor | None,
        context_keep: Tensor | None,
        table: Tensor | None = None,
    ) -> Output:
        vectors = seq.x if seq.embedded else self.embed.vectors(seq.x, table)
        if isinstance(self.head, Pixels):
            vectors = self.head.hide(vectors, given.bool_masked_pos)
        limit = self.spec.stack.recurrence if given.mem_len is None else given.mem_len
        past = _past(given) or begin.primed(self.spec.stack, limit, seq.mask, vectors.device)
        memory = self.embed.memory if past is None else None
        pinned = self.spec.embed.memory
        layout = begin.arrange(
            seq, vectors.shape[1], 0 if memory is None else pinned, past, vectors.device
        )
        places = begin.places(seq, layout, self.spec.embed.position, past)
        x = self.embed(vectors, places, seq.types, seq.langs)
        x = _with_memory(x, memory, layout.order)
        call = Call(
            length=x.shape[1],
            positions=layout.whole,
            keep=layout.keep,
            right=layout.right,
            documents=seq.documents,
            prefix=None if seq.prefix is None else seq.prefix + layout.first,
            context=context if self.bridge is None or context is None else self.bridge(context),
            context_keep=context_keep,
            past=past,
            following=_following(given, past, layout, self.spec, context, context_keep),
            weights=[] if given.output_attentions else None,
            hidden=[] if given.output_hidden_states else None,
            window=limit if given.same_length else None,
            asking=_asking(self.head, layout),
        )
        x = self.stack(x, call)
        call.context = context
        drop = 0 if memory is None else memory.shape[0]
        bare = lambda h: _without_memory(h, drop, layout.order)
        call.hidden = None if call.hidden is None else [bare(h) for h in call.hidden]
        if call.exits is not None:
            states, shares = call.exits
            call.exits = [bare(self.stack.ended(h)) for h in states], bare(shares)
        return self._answer(bare(x), call, given, seq)

    def decoded(self, ids: Tensor, places: Tensor, call: Call) -> Tensor:
        """Logits (B, N, V) of ids at places (1 or B, N), in a call that a decoder has prepared."""
        return self._told(self.carried(ids, places, call), None, NOTHING)["logits"]

    def carried(self, ids: Tensor, places: Tensor, call: Call) -> Tensor:
        """The same before the head, (B, N, d)."""
        return self.stack(self.embed(self.embed.vectors(ids, None), places, None), call)

    def _answer(self, x: Tensor, call: Call, given: Inputs, seq: Sequence) -> Output:
        out = Output(last_hidden_state=x, encoder_last_hidden_state=call.context)
        following = call.following
        if following is not None:
            following.context, following.context_keep = call.context, call.context_keep
            out.past_key_values = following if following.is_cache else None
            out.mems = None if following.is_cache else following
        if call.hidden is not None:
            out.hidden_states = (*call.hidden, x)
        out.attentions = None if call.weights is None else tuple(call.weights)
        out.extra = call.extra or None
        if call.exits is not None:
            states, shares = call.exits
            out.exits = torch.stack([self._told(h, None, given)["logits"] for h in states]), shares
        real = pooled(self.spec.head, seq, given, x.shape[1])
        asked = x[:, -given.logits_to_keep :].contiguous()  # all of them where it is 0
        for name, answer in self._told(asked, real, given).items():
            out[name] = answer
        return out

    def _told(self, x: Tensor, real: Tensor | None, given: Inputs) -> dict[str, Tensor]:
        """The answers of the head by name, x (B, N, d) and where it is real."""
        head, table = self.head, self.token_table()
        if isinstance(head, Pretraining):
            return head(x, real, table)
        if isinstance(head, Double):
            return head(x, real, given.mc_token_ids, table)
        if isinstance(head, Span):
            start, end = head(x, real).unbind(-1)
            return {"start_logits": start, "end_logits": end}
        if isinstance(head, Beams):
            return head(x, real, given)
        if isinstance(head, Pooler):
            return {"pooler_output": head(x, real)}
        if isinstance(head, Pixels):
            return {"reconstruction": head(x)}
        if isinstance(head, Vocabulary) and given.targets is not None:
            return head.scored(x, table, given.targets, given.targets_at)
        if isinstance(head, Vocabulary):
            return {"logits": head(x, table)}
        read = self.embed if isinstance(head, Adaptive) else real
        return {} if head is None else {"logits": head(x, read)}

    def generate(self, *inputs: Any, **options: Any) -> Tensor:
        """Continue a batch of prompts; see anyformer.generate.generate."""
        return importlib.import_module("anyformer.generate").generate(self, *inputs, **options)

    def save_pretrained(self, folder: Any, format: str | None = None, **options: Any) -> None:
        """Write the model to a folder that anyformer.load reads; see anyformer.checkpoint.save."""
        importlib.import_module("anyformer.checkpoint").save(self, folder, format, **options)

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Compute activations inside blocks again in the backward pass; Trainer's name for it."""
        kinds = options.pop("gradient_checkpointing_kwargs", None) or {}
        if {k: v for k, v in {**options, **kinds}.items() if v and (k, v) != ("every_n_layers", 1)}:
            raise InputError("gradient checkpointing takes no options here: all blocks, no offload")
        self.gradient_checkpointing_disable()
        train = importlib.import_module("anyformer.train.prepare")
        train.prepare(self, train.Settings(recompute=True))

    def gradient_checkpointing_disable(self) -> None:
        """Keep all activations again."""
        for module in self.modules():
            if isinstance(module, Block):
                module.__dict__.pop("forward", None)


def build(spec: S.Model) -> Model:
    """The model that a spec describes, with fresh weights; a spec that breaks a rule is refused."""
    check_room(S.check(spec))
    return Model(spec)


def _asking(head: nn.Module | None, layout: begin.Layout) -> Tensor | None:
    """What positions add to the queries of the last block, where the head asks for it."""
    return head.asking(layout.positions) if isinstance(head, Vocabulary) else None


def _hiding(mask: Tensor | None) -> Tensor | None:
    """A mask as booleans; None where it hides nothing."""
    return None if mask is None or bool(mask.all()) else mask.bool()


def _past(given: Inputs) -> Past | None:
    """What is remembered, of whichever kind; an empty cache is none."""
    past = given.past_key_values if given.past_key_values is not None else given.mems
    return past if past is not None and past.length > 0 else None


def _following(
    given: Inputs,
    past: Past | None,
    layout: begin.Layout,
    spec: S.Model,
    context: Tensor | None,
    context_keep: Tensor | None,
) -> Past | None:
    """What the next call will remember; None if nothing is asked."""
    if given.return_mems:
        limit = spec.stack.recurrence if given.mem_len is None else given.mem_len
        return begin.remember(past, layout, limit, spec.embed.memory)
    if given.use_cache or given.past_key_values is not None:
        following = begin.remember(past, layout, None, 0)
        following.context, following.context_keep = context, context_keep
        return following
    return None


def _with_memory(x: Tensor, memory: Tensor | None, order: Tensor | None) -> Tensor:
    """Memory tokens in front of x (B, N, d), behind any padding on the left."""
    if memory is None:
        return x
    x = torch.cat([memory.to(x.dtype).expand(x.shape[0], -1, -1), x], 1)
    return x if order is None else x.gather(1, order[..., None].expand_as(x))


def _without_memory(x: Tensor, drop: int, order: Tensor | None) -> Tensor:
    """The input's positions (B, N, d) of the stream, in the input's order."""
    if order is not None:
        x = torch.empty_like(x).scatter(1, order[..., None].expand_as(x), x)
    return x[:, drop:]
