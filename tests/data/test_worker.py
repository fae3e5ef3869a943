"""What a worker does with texts, and how little it imports for that."""

import subprocess
import sys

from anyformer.data import crew, worker
from anyformer.data.train_tokenizer import train
from tests.data.vocabularies import LINES

TEXTS = ["", "One. Two three!", *LINES[:20]]


def test_a_worker_imports_neither_numpy_nor_torch():
    start = crew.START.split(";")[0]
    code = f"import sys; {start}; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_ids_are_those_of_the_tokenizer():
    tokenizer = train("bpe", LINES, 400)
    raw = worker.encoded(crew.job_of(tokenizer, None), TEXTS)
    found = crew.ids_of(tokenizer, raw)
    assert found.ids.tolist() == [id for text in TEXTS for id in tokenizer.encode(text)]
    assert found.lengths.tolist() == [len(tokenizer.encode(text)) for text in TEXTS]
    assert not len(crew.ids_of(tokenizer, worker.encoded(crew.job_of(tokenizer, None), [])).ids)


def test_segments_are_counted_for_each_text():
    tokenizer = train("bpe", LINES, 400)
    found = crew.ids_of(tokenizer, worker.encoded(crew.job_of(tokenizer, "sentence"), TEXTS))
    assert found.counts is not None and found.counts[:2].tolist() == [0, 2]
    assert found.segments is not None and len(found.segments) == found.counts.sum()
    assert found.lengths.sum() == len(found.ids)
