"""Published sizes: as many parameters as transformers builds, and as the model cards say."""

import pytest
import torch
import transformers

import anyformer
from anyformer.checkpoint import families
from anyformer.checkpoint.family import FAMILIES
from anyformer.errors import CheckpointError
from anyformer.recipes import recipe
from anyformer.recipes.sizes import SIZES

assert families  # importing it makes them known
PUBLISHED = {  # what the files hold, as their model cards count it
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "distilbert-base": 66_362_880,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "xlm-roberta-base": 278_043_648,
    "xlm-roberta-large": 559_890_432,
    "albert-base-v2": 11_683_584,
    "albert-xxlarge-v2": 222_595_584,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "gpt-neo-125m": 125_198_592,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neo-2.7b": 2_651_307_520,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-70m": 70_426_624,
    "pythia-410m": 405_334_016,
    "opt-125m": 125_239_296,
    "opt-6.7b": 6_658_473_984,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-65b": 65_285_660_672,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "qwen2-0.5b": 494_032_768,
    "qwen2-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-xxl": 11_135_332_352,
    "m2m100-418m": 483_905_536,
    "vit-base-16": 86_567_656,
    "modernbert-base": 149_655_232,
    "gemma3-270m": 268_098_176,
    "gemma3-1b": 999_885_952,
}
# without a head: of DeBERTa transformers has none as published, and it ties every T5's
BARE = ("deberta", "deberta-v2", "deberta-v3", "t5-1-1")
OLDER = {"t5-1-1": "t5", "deberta-v3": "deberta-v2"}  # recipes that an older family's files hold
GPT3 = {"125m": 125, "350m": 350, "760m": 760, "1.3b": 1300, "2.7b": 2700, "6.7b": 6700}
GPT3 |= {"13b": 13000, "175b": 175000}  # millions, in the table of arXiv:2005.14165


def counted(name):
    return anyformer.count(recipe(name)).parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_as_many_as_published(name):
    assert counted(name) == PUBLISHED[name]


@pytest.mark.parametrize("name", GPT3)
def test_gpt3_has_the_sizes_of_its_table(name):
    assert counted(f"gpt3-{name}") / 1e6 == pytest.approx(GPT3[name], rel=0.1)


def as_a_file(spec, base):
    """The class and the config.json by which transformers knows a spec."""
    for family in (f for f in FAMILIES.values() if f.recipe == OLDER.get(base, base)):
        for name, task in family.tasks.items():
            try:
                return task.architecture, family.config_of(spec, name, {})
            except CheckpointError:  # another head
                continue
    raise AssertionError(f"no family writes {base}")


@pytest.mark.parametrize("name", [n for n in SIZES if not n.startswith("gpt3")])
def test_as_many_as_transformers_builds(name):
    spec = recipe(name)
    if SIZES[name][0] in BARE:
        spec = anyformer.override(spec, "head", None)
    architecture, fields = as_a_file(spec, SIZES[name][0])
    made = getattr(transformers, architecture)
    config = made.config_class(**{k: v for k, v in fields.items() if k != "architectures"})
    with torch.device("meta"):
        theirs = made(config)
    buffers = sum(b.numel() for n, b in theirs.named_buffers() if n == "final_logits_bias")
    assert theirs.num_parameters() + buffers == anyformer.count(spec).parameters
