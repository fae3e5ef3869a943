"""The pair of generator and model against transformers' two, one step of both."""

import torch
import transformers

from anyformer import recipe
from anyformer.checkpoint.native import Origin
from anyformer.objectives.base import IGNORED
from anyformer.objectives.replaced import ReplacedToken, sample
from tests.objectives import samples as T
from tests.objectives.stepping import batch_of, loss_of, trainee_of

TOK = T.tokenizer("bert")
SIZES = {"dim": 16, "depth": 2, "heads": 4, "vocab": len(TOK), "length": 24, "dropout": 0.0}
TABLES = ("word_embeddings", "position_embeddings", "token_type_embeddings")


def theirs_of(trainee, folder):
    """The two as transformers builds them, with one set of tables."""
    body = trainee.beside.body
    body.head = trainee.beside.head  # whole again, to be written
    for model, name, task in (
        (trainee.model, "model", "replaced-tokens"),
        (body, "generator", "masked-lm"),
    ):
        model.origin = Origin("electra", task, {})
        model.save_pretrained(folder / name)
    body.head = None
    model = transformers.ElectraForPreTraining.from_pretrained(folder / "model")
    generator = transformers.ElectraForMaskedLM.from_pretrained(folder / "generator")
    ours, lent = generator.electra.embeddings, model.electra.embeddings
    for table in TABLES:
        setattr(ours, table, getattr(lent, table))
    generator.generator_lm_head.weight = lent.word_embeddings.weight
    return generator.eval(), model.eval()


def test_loss_and_gradients_are_those_of_the_papers_sum(tmp_path):
    spec = recipe("electra", width=8, **SIZES)
    objective = ReplacedToken().bind(TOK, spec)
    rows = [*T.text_rows(TOK, 22, 3).rows[:2], T.text_rows(TOK, 22, 3).rows[2][:15]]
    given, trainee = batch_of(objective, T.Rows(rows)), trainee_of(objective, spec)
    with torch.no_grad():
        for weight in trainee.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    generator, model = theirs_of(trainee, tmp_path)
    ids, labels, mask = given["input_ids"], given["labels"], given["attention_mask"]

    torch.manual_seed(5)
    loss, _ = loss_of(trainee, given)
    loss.backward()

    filled = generator(ids, attention_mask=mask, labels=labels)
    chosen = labels != IGNORED
    original = torch.where(chosen, labels, ids)
    torch.manual_seed(5)
    drawn = original.masked_scatter(chosen, sample(filled.logits[chosen]))
    assert not torch.equal(drawn, original)
    told = model(drawn, attention_mask=mask, labels=(drawn != original).long())
    wanted = filled.loss + 50 * told.loss
    wanted.backward()

    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-5)
    embed, table = trainee.model.embed, model.electra.embeddings
    small, attention = trainee.beside.body.stack, generator.electra.encoder.layer[0].attention
    for ours, hf in (
        (embed.token.weight, table.word_embeddings.weight),
        (embed.position.weight, table.position_embeddings.weight),
        (embed.segment.weight, table.token_type_embeddings.weight),
        (embed.project.weight, model.electra.embeddings_project.weight),
        (trainee.beside.body.embed.project.weight, generator.electra.embeddings_project.weight),
        (small.blocks[0][0].branch.v.weight, attention.self.value.weight),
        (trainee.model.head.out.weight, model.discriminator_predictions.dense_prediction.weight),
    ):
        torch.testing.assert_close(ours.grad, hf.grad, rtol=1e-4, atol=1e-4)
