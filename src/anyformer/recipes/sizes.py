"""Published sizes: a name, its recipe, and the options in which it differs from the defaults."""

from __future__ import annotations

from typing import Any

from anyformer.spec.edit import parse

EPS5 = "stack.block.*.norm.eps=1e-5 stack.final_norm.eps=1e-5"
LLAMA3 = f"kv_heads=8 vocab=128256 theta=500000.0 {EPS5}"
QWEN = "vocab=151936 head.tied=true"
TABLE = f"""
bert-tiny bert dim=128 depth=2 heads=2
bert-base bert
bert-base-cased bert vocab=28996
bert-base-multilingual bert vocab=119547
bert-large bert dim=1024 depth=24 heads=16
distilbert-base distilbert
roberta-base roberta
roberta-large roberta dim=1024 depth=24 heads=16
roberta-prelayernorm-large roberta-prelayernorm dim=1024 depth=24 heads=16
xlm-roberta-base xlm-roberta
xlm-roberta-large xlm-roberta dim=1024 depth=24 heads=16
xlm-mlm-en-2048 xlm
albert-base-v2 albert
albert-large-v2 albert dim=1024 depth=24 heads=16
albert-xlarge-v2 albert dim=2048 depth=24 heads=16
albert-xxlarge-v2 albert dim=4096 heads=64
electra-small electra
electra-base electra dim=768 heads=12 width=768
electra-large electra dim=1024 depth=24 heads=16 width=1024
deberta-base deberta
deberta-large deberta dim=1024 depth=24 heads=16
deberta-v2-xlarge deberta-v2
deberta-v3-base deberta-v3
deberta-v3-large deberta-v3 dim=1024 depth=24 heads=16
big-bird-base big-bird
big-bird-large big-bird dim=1024 depth=24 heads=16
modernbert-base modernbert
modernbert-large modernbert dim=1024 depth=28 heads=16 hidden=2624
gpt2-medium gpt2 dim=1024 depth=24 heads=16
gpt2-large gpt2 dim=1280 depth=36 heads=20
gpt2-xl gpt2 dim=1600 depth=48 heads=25
gpt3-125m gpt3 dim=768 depth=12 heads=12 head_dim=64
gpt3-350m gpt3 dim=1024 depth=24 heads=16 head_dim=64
gpt3-760m gpt3 dim=1536 depth=24 heads=16 head_dim=96
gpt3-1.3b gpt3 dim=2048 depth=24 heads=16
gpt3-2.7b gpt3 dim=2560 depth=32 heads=32 head_dim=80
gpt3-6.7b gpt3 dim=4096 depth=32 heads=32
gpt3-13b gpt3 dim=5140 depth=40 heads=40
gpt3-175b gpt3
gpt-neo-125m gpt-neo dim=768 depth=12 heads=12
gpt-neo-1.3b gpt-neo
gpt-neo-2.7b gpt-neo dim=2560 depth=32 heads=20
gpt-j-6b gpt-j
gpt-neox-20b gpt-neox
pythia-70m gpt-neox dim=512 depth=6 heads=8 hidden=2048 vocab=50304
pythia-160m gpt-neox dim=768 depth=12 heads=12 hidden=3072 vocab=50304
pythia-410m gpt-neox dim=1024 depth=24 heads=16 hidden=4096 vocab=50304
pythia-1b gpt-neox dim=2048 depth=16 heads=8 hidden=8192 vocab=50304
pythia-1.4b gpt-neox dim=2048 depth=24 heads=16 hidden=8192 vocab=50304
pythia-2.8b gpt-neox dim=2560 depth=32 heads=32 hidden=10240 vocab=50304
opt-125m opt
opt-1.3b opt dim=2048 depth=24 heads=32 hidden=8192
opt-2.7b opt dim=2560 depth=32 heads=32 hidden=10240
opt-6.7b opt dim=4096 depth=32 heads=32 hidden=16384
opt-13b opt dim=5120 depth=40 heads=40 hidden=20480
opt-30b opt dim=7168 depth=48 heads=56 hidden=28672
opt-66b opt dim=9216 depth=64 heads=72 hidden=36864
llama-7b llama
llama-13b llama dim=5120 depth=40 heads=40 hidden=13824
llama-30b llama dim=6656 depth=60 heads=52 hidden=17920
llama-65b llama dim=8192 depth=80 heads=64 hidden=22016
llama-2-7b llama {EPS5}
llama-2-70b llama dim=8192 depth=80 heads=64 kv_heads=8 hidden=28672 {EPS5}
llama-3-8b llama hidden=14336 {LLAMA3}
llama-3-70b llama dim=8192 depth=80 heads=64 hidden=28672 {LLAMA3}
mistral-7b mistral
qwen2-0.5b qwen2 dim=896 depth=24 heads=14 kv_heads=2 hidden=4864 {QWEN}
qwen2-1.5b qwen2 dim=1536 heads=12 kv_heads=2 hidden=8960 {QWEN}
qwen2-7b qwen2
qwen3-0.6b qwen3 dim=1024 depth=28 heads=16 hidden=3072 head.tied=true
qwen3-1.7b qwen3 dim=2048 depth=28 heads=16 hidden=6144 head.tied=true
qwen3-4b qwen3 dim=2560 hidden=9728 head.tied=true
qwen3-8b qwen3
gemma2-2b gemma2
gemma2-9b gemma2 dim=3584 depth=42 heads=16 kv_heads=8 hidden=14336
gemma3-270m gemma3 dim=640 depth=18 heads=4 kv_heads=1 hidden=2048 vocab=262144 window=512
gemma3-1b gemma3 dim=1152 heads=4 kv_heads=1 hidden=6912 vocab=262144 window=512
t5-small t5
t5-base t5 dim=768 depth=12 heads=12
t5-large t5 dim=1024 depth=24 heads=16
t5-3b t5 dim=1024 depth=24 heads=32 head_dim=128 hidden=16384
t5-11b t5 dim=1024 depth=24 heads=128 head_dim=128 hidden=65536
t5-v1_1-small t5-1-1
t5-v1_1-base t5-1-1 dim=768 depth=12 heads=12 hidden=2048
t5-v1_1-large t5-1-1 dim=1024 depth=24 heads=16 hidden=2816
t5-v1_1-xl t5-1-1 dim=2048 depth=24 heads=32 hidden=5120
t5-v1_1-xxl t5-1-1 dim=4096 depth=24 heads=64 hidden=10240
mt5-small t5-1-1 vocab=250112
mt5-base t5-1-1 vocab=250112 dim=768 depth=12 heads=12 hidden=2048
mt5-large t5-1-1 vocab=250112 dim=1024 depth=24 heads=16 hidden=2816
bart-base bart dim=768 depth=6 heads=12
bart-large bart
mbart-large-cc25 mbart vocab=250027 scaled=true
m2m100-418m m2m-100
m2m100-1.2b m2m-100 depth=24 hidden=8192
bigbird-pegasus-large bigbird-pegasus
vit-base-16 vit
vit-base-32 vit patch=32
vit-large-16 vit dim=1024 depth=24 heads=16
vit-huge-14 vit dim=1280 depth=32 heads=16 patch=14
"""


def _read(line: str) -> tuple[str, tuple[str, dict[str, Any]]]:
    name, recipe, *words = line.split()
    pairs = (word.partition("=") for word in words)
    return name, (recipe, {key: parse(value) for key, _, value in pairs})


SIZES: dict[str, tuple[str, dict[str, Any]]] = dict(map(_read, TABLE.split("\n")[1:-1]))
