"""Every case of the fault catalogue: what goes wrong, and what the library does then.

A test belongs to a case by its name, `test_a1_…`, or by its parameter, `[u8 …]`.
"""

from __future__ import annotations

GROUPS = {
    "a": "Files of weights",
    "b": "Configurations",
    "c": "Tokenizers",
    "d": "Data",
    "e": "Training that is interrupted",
    "f": "Several processes",
    "g": "Resources",
    "h": "Inference",
    "i": "The command and reports",
    "u": "Combinations that fail in x-transformers",
    "p": "Poisoned folders",
}

# one a line: case | what goes wrong | what happens
_LINES = """
a1|an empty file|named, refused
a2|a file of seven bytes|named, refused
a3|a header of 2⁶³ bytes, or longer than the file|refused before it is read
a4|a header that is no JSON or no UTF-8|named, refused
a5|data cut short, at ten places|refused with the bytes found and expected
a6|bytes behind the end|refused
a7|offsets that overlap or leave holes|refused
a8|shapes, sizes or dtypes that lie|refused
a9|one name twice|refused (the safetensors library reads it)
a10|200,000 entries|refused by their number, in seconds
a11|hostile tensor names|unknown keys, shown escaped and cut
a12|missing keys|some named, the rest counted; tied ones are never missing
a13|keys too many|named with the nearest known ones
a14|shapes that differ|both shapes named, with the key and both files
a15|an index naming a lost shard, one elsewhere, a key twice|refused; elsewhere: status 3
a16|NaN or infinite weights|refused, the tensor named
a17|bfloat16 and float8|kept as stored unless a dtype is given; float8 needs one
a18|pickles|refused with the command that converts them; code: status 3, not run
a19|a poisoned index of torch.distributed.checkpoint|refused, not run, even where its manifest fits
a20|Git LFS pointers and web pages|said to be such, with the way out
a21|a file that changes while it is read|an error, never a crash; checksums where a manifest is
b22|an unknown key|refused, the nearest named
b23|a value of the wrong type, NaN, 1e400|refused, the field named
b24|sizes that can't be|refused with the rule and its remedy
b25|switches that contradict each other|refused, both named; what can be combined has its effect
b26|models beyond all memory|refused with the GiB before any is taken; depth ends at 10,000
b27|100 MB, depth 10⁴, names twice, a BOM, comments|refused, named
b28|fields that name code|never imported; ignored aloud, or unknown kinds
b29|an unknown family|refused, the nearest named or all listed
b30|other versions of our formats|refused, with what to do
b31|odd, long and unreadable paths, pipes, folders|read, or refused in time
c32|six files that make the tokenizers library panic|errors of ours, or the setting is not used
c33|ids twice, far away, with gaps|refused
c34|special tokens that an objective needs|named before the first step
c35|a vocabulary of another size|refused with both numbers
c36|texts made to break it|come back whole, in linear time; half surrogates are named
c37|an empty corpus, too small a vocabulary|refused with the size that would do
c38|a pattern without end|ends with an error in seconds
c39|hostile chat templates|no template is ever rendered
d40|empty files, blank lines, endless lines|named; texts of any length come in pieces
d41|other encodings, binary files, gzip bombs|named, with the byte
d42|a broken line of JSON|its number; `--on-bad skip` counts them
d43|a missing column|named with those that are there
d44|labels unseen, one alone, with gaps|named; gaps don't matter
d45|answers that don't stand where they should, are cut off or are none|named; no answer there
d46|fewer samples than a batch, a row or ranks|the next epoch fills up; too little text is named
d47|records in both parts|warned of, with their number
d48|data that changed since the run began|resume refused unless allowed
d49|a worker that is killed|named at once; the run can be resumed
d50|any number of workers|the same order, by construction
e51|SIGINT once, twice|the step is finished and saved, 130; at once
e52|SIGTERM|saved within the grace, 143
e53|SIGKILL between any two operations of a save|the last complete checkpoint is found and whole
e54|a resumed run|the same bits: losses, weights, order of data
e55|another number of ranks|the same samples in the same order, or refused
e56|losses that are NaN or infinite|the step taken back, its batch left out and named, then a stop
e57|a spike|the same, by deviations
e58|a clock that goes back, huge numbers of steps, short schedules|the run is the same
e59|two processes in one folder|refused with the other's number
e60|a corrupt newest checkpoint|said; the one before is taken
f61|a rank that raises|all end; the others say what it said
f62|a rank that is killed|all end; the restart ends with the same bits
f63|a rank that hangs|named by the others, with the call, after the time limit
f64|ranks that were asked different things|refused at the start, the key named
f65|a wrong environment|named, in seconds
f66|one rank without room; files seen late|all end, the last checkpoint whole; nothing is missed
f67|saved by two ranks, read by one and by four|the same run
f68|a last batch that is uneven|exact denominators
f69|a save in the background|joined; its failure is raised
g70|a full disk|what was there stays, nothing half written is left
g71|memory that runs out|the need in GiB and the knobs; resume goes on
g72|memory of a GPU that runs out|the same (on a GPU)
g73|places that can't be written, 150 shards with 16 free file handles|named; read
g74|no network|nothing is asked for but names of the hub; those fail in seconds
g75|a reader that has seen enough (`head`)|quiet
g76|one core and 512 MB|training runs
h77|empty, hidden, too long, wrong prompts|named
h78|options out of range|named; more tokens than fit are said
h79|nothing left to choose from|named, with row and step
h80|split stops, an end at once, rows of unequal length|as single ones
h81|a cache|the same tokens as without
h82|a stream|the same text, no half characters
h83|no context, no labels|named; LABEL_n
h84|threads at once|the same answers
i85|unknown words, flags and values|the nearest named, status 2, nothing written
i86|folders that are not empty|refused
i87|markup, formulas and escapes in names|text, nothing else
i88|a report without a network|asks for nothing
i89|numbers that are none, no point, one, very many|drawn
i90|broken lines of a log|left out
i91|ASCII terminals, no colour, 20 columns|readable
i92|secrets of the environment|in no file of a run, in no message
u1|top-k of fewer keys than k|works
u2|masks with memory key/values|works
u3|masks with segment memory|works
u4|prefixes with memory|works
u5|sinusoids and prompts of unequal lengths|works
u6|prefixes and a cache|works; `generate` refuses them by name
u7|vectors with memory tokens|works
u8|carried scores and a learned sink|refused by name
u9|normed values of few heads|refused by name
u10|wide values and memory keys|refused by name
u11|projected distances and memory keys|refused by name
u12|contextual positions|refused by name
u13|polar positions and segments|refused by name
u14|slopes from data and segments|refused by name
u15|hyper-connections and segments|refused by name
u16|residual values and segments|refused by name
u17|a class token and a cache|refused by name
u18|blocks left out and layers integrated|refused by name
u19|z-loss on the fast path|refused by name
u20|a polar start|refused by name
u21|attention on attention that starts at zero|refused by name
u22|aggregated residuals of a small model|refused by name
u23|an orthogonal residual, which leaks|refused by name
u24|orthogonal values, which leak|refused by name
u25|a residual split in two, which leaks|refused by name
u26|slopes from data, row by row, which differ in a cache|refused by name
u27|shifted tokens, which differ in a cache|refused by name
u28|one's own attention on the fast path, ignored|refused by name
u29|Gumbel noise on the fast path, ignored|refused by name
u30|selective attention and segments|refused by name
u31|switches that see the future|none does
u32|switches that make a cache differ|none does
u33|switches that the fast path ignores|none is
u34|`causal` in a call, ignored|refused by name
u35|prompts of unequal lengths with memory|works
u36|segments with every switch|equal one long pass
u37|a sandwich that loses cross-attention|refused
u38|T5's bias once more in each layer under carried scores|once
u39|blocks left out that shift memories|each keeps its own
u40|an encoder that is trained to continue|refused
u41|modes after an error|restored
u42|copies of tied models|stand alone
u43|keywords that are dropped|refused by name
u44|rows of zeros in half precision|finite
u45|a context that is wholly hidden|finite
p1|pickles of six kinds, under every verb|nothing is run
p2|configurations and code beside them|nothing is run
p3|whole runs with hostile indexes and manifests that fit|nothing is run, nothing outside is read
p4|templates|nothing is run
p5|shards and links elsewhere|refused, status 3
p6|markup in names|stays text
"""

CASES: dict[str, tuple[str, str]] = {
    name: (fault, answer)
    for name, fault, answer in (line.split("|") for line in _LINES.strip().splitlines())
}
