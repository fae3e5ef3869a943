"""BigBird's head of question answering and BigBird-Pegasus's decoder against transformers.

And why a BigBird that reads another sequence is refused.
"""

from __future__ import annotations

import logging

import pytest
import torch
import transformers

import anyformer
from tests.parity.hf.birds import VOCAB, encoder, length_of, made, same_files, writer
from tests.parity.hf.compare import SEEDS, close, same_gradients

LOW = -1e5  # below it is a logit inside the question


def asked(fields, seed, length):
    """Rows whose question ends somewhere, at once or never; ends of answers behind it or at 0."""
    drawn = torch.Generator().manual_seed(seed)
    ids = torch.randint(6, VOCAB, (4, length), generator=drawn)
    for row, place in ((0, 4), (0, 7), (2, 0), (3, 2)):
        ids[row, place] = 5
    ends = torch.randint(5, length, (2, 4), generator=drawn)
    ends[0, 3] = 0
    given = {"input_ids": ids, "start_positions": ends[0], "end_positions": ends[1]}
    if seed % 2:
        given["token_type_ids"] = torch.randint(0, 2, (4, length), generator=drawn)
    return given


def assert_same_ends(found, wanted, real):
    """Assert that logits agree at real positions, those of the question to their own scale."""
    for name in ("start_logits", "end_logits"):
        a, b = found[name][real], wanted[name][real]
        assert torch.equal(a < LOW, b < LOW), name
        close(a[b > LOW], b[b > LOW], name)
        close(a[b < LOW], b[b < LOW], name) if (b < LOW).any() else None


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_to_a_question(seed, tmp_path):
    fields = encoder(seed) | ({} if seed % 4 == 2 else {"sep_token_id": 5})
    hf = made("big_bird", "question-answering", fields, seed)
    given = asked(fields, seed, length_of(fields, seed))
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    a, b, c = (model(**given) for model in (hf, ours, again))
    whole = torch.ones_like(given["input_ids"]).bool()
    assert_same_ends(b, a, whole)
    assert all(torch.equal(a[name], c[name]) for name in ("loss", "start_logits", "end_logits"))
    assert bool((a.start_logits < LOW).any()) == ("sep_token_id" in fields)
    close(b.loss, a.loss, "loss")
    a.loss.backward()
    b.loss.backward()
    same_gradients(hf, ours, "big_bird", "question-answering")
    padded = {k: v for k, v in given.items() if not k.endswith("positions")}
    mask = whole.long()
    mask[1, -3:] = 0
    with torch.no_grad():
        assert_same_ends(*(m(**padded, attention_mask=mask) for m in (ours, hf)), mask.bool())


def test_vectors_have_no_question(tmp_path):
    fields = encoder(0, attention_type="original_full", rescale_embeddings=False)
    hf = made("big_bird", "question-answering", fields | {"sep_token_id": 5}, 0)
    hf.save_pretrained(tmp_path)
    vectors = hf.bert.embeddings.word_embeddings(asked(fields, 0, 12)["input_ids"])
    with torch.no_grad():
        a, b = (model(inputs_embeds=vectors) for model in (hf, anyformer.load(tmp_path)))
    assert_same_ends(b, a, torch.ones(4, 12).bool())


@pytest.mark.parametrize("kind", ["original_full", "block_sparse"])
def test_why_a_bird_that_reads_another_sequence_is_refused(kind):
    """What it says there is not defined: the self-attention reads the other sequence too.

    So nothing that stands before changes anything, the same call with a cache says something else
    (both attentions share its entry), and what the other sequence's mask hides is seen.
    """
    fields = encoder(1, attention_type=kind, is_decoder=True, add_cross_attention=True)
    hf = made("big_bird", "causal-lm", fields | {"block_size": 2}, 1)
    ids, context = torch.randint(6, VOCAB, (2, 6)), torch.randn(2, 4, fields["hidden_size"])
    mask = torch.tensor([[1, 1, 0, 0]] * 2)
    other = torch.cat([ids[:, :5].roll(1, 0) * 0 + 7, ids[:, 5:]], 1)
    with torch.no_grad():
        run = lambda ids, seen=context, **more: hf(ids, encoder_hidden_states=seen, **more).logits
        plain = run(ids, use_cache=False)
        assert torch.equal(run(other, use_cache=False)[:, 5], plain[:, 5])
        assert (run(ids, use_cache=True) - plain).abs().max() > 1e-3
        hidden = run(ids, use_cache=False, encoder_attention_mask=mask)
        assert (hidden - run(ids, context[:, :2], use_cache=False)).abs().max() > 1e-3


@pytest.mark.parametrize("seed", SEEDS)
def test_the_writer_alone(seed, tmp_path):
    fields = writer(seed)
    hf = made("bigbird_pegasus", "causal-lm", fields, seed)
    drawn = torch.Generator().manual_seed(seed)
    ids, mask = torch.randint(6, VOCAB, (3, 9), generator=drawn), torch.ones(3, 9).long()
    mask[1, 5:] = 0
    given = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    given["labels"] = ids.masked_fill(mask == 0, -100)
    if seed % 2 == 0:
        given["encoder_hidden_states"] = torch.randn(3, 4, fields["d_model"], generator=drawn)
        given["encoder_attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]])
    again = same_files(hf, tmp_path)
    ours = anyformer.load(tmp_path / "ours")
    assert not ours.spec.head.tied
    a, b, c = (model(**given) for model in (hf, ours, again))
    close(b.loss, a.loss, "loss")
    close(b.logits[mask.bool()], a.logits[mask.bool()], "logits")
    assert torch.equal(a.logits, c.logits)
    a.loss.backward()
    b.loss.backward()
    same_gradients(hf, ours, "bigbird_pegasus", "causal-lm")


def test_a_whole_writer_gives_its_decoder(tmp_path, caplog):
    hf = made("bigbird_pegasus", "seq2seq-lm", writer(0), 0)
    hf.save_pretrained(tmp_path / "theirs")
    with caplog.at_level(logging.WARNING, logger="anyformer"):
        ours = anyformer.load(tmp_path / "theirs", "causal-lm")
    assert "head.weight start fresh" in caplog.text  # as there: the table is not tied
    ours.save_pretrained(tmp_path / "ours")
    again = transformers.BigBirdPegasusForCausalLM.from_pretrained(tmp_path / "ours").eval()
    ids = torch.randint(6, VOCAB, (2, 5))
    with torch.no_grad():
        close(ours(ids).logits, again(ids).logits, "logits")
