#!/usr/bin/env bash
# What to run on a machine with a GPU, part by part: bash benchmarks/on_gpu.sh tests decode switches
# families. What is printed belongs into benchmarks/results; PARTS are in the order of their worth.
# OUT is where tables go; LAWS=n runs random specs through the laws beside, in n processes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONPATH="src:.:${PYTHONPATH:-}" OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1
OUT=${OUT:-build/gpu}
mkdir -p "$OUT"
python=${PYTHON:-python3}

said() { printf '\n=== [%4ds] %s\n' "$SECONDS" "$*"; }
bench() { said "$@"; timeout "${LIMIT:-300}" "$python" -m benchmarks "$@" --device cuda --out "$OUT"; }
tests() { # FILE...: failures by name, even where time runs out
    said tests "$@"
    OMP_NUM_THREADS=1 timeout -s INT "${LIMIT:-300}" "$python" -m pytest -p no:cacheprovider -p no:benchmark -n 15 \
        --dist worksteal --tb=short -v "$@" >"$OUT/tests.log" 2>&1
    grep -E "FAILED|ERROR|^E  |passed|failed" "$OUT/tests.log" | cut -c1-200 | sort | uniq -c | tail -40
}

for ((i = 0; i < ${LAWS:-0}; i++)); do
    (for ((j = 0; ; j++)); do
        OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES='' nice -n 19 "$python" -m anyformer.laws --jobs 1 \
            --random 50 --seed $((${SEED:-1000000} + (j * LAWS + i) * 50)) --keep "$OUT/broken" \
            >>"$OUT/laws.$i.log" 2>&1
    done) &
done
trap 'kill $(jobs -p) 2>/dev/null' EXIT

for part in "$@"; do
    case $part in
        smoke) tests tests/ops/test_{entry,rows,step,entropy,far,gelu,lead,native,norm,lookup,onepass,shelf,talking,tiles,sparse,fastest,float8}.py tests/train/test_update.py tests/generate/test_{opening,fused}.py ;;
        tests) tests tests/ops tests/generate/test_static.py tests/generate/test_fused.py ;;
        rows) bench rows ;;
        decode) bench decode --rounds 3 --only gpt-2-1 gpt-2-64 llama-shaped-1 ;;
        kernels) bench kernels ;;
        entropy) bench entropy --rounds 5 ;;
        families) bench families --rounds 3 --only gpt2 bert deberta-v3 t5 ;;
        shelves)
            tests tests/ops/test_{native,onepass,shelf,far,talking}.py
            bench tune --only "Transformer-XL, shelves" "DeBERTa, far"
            bench parts --lengths 1024 8192 --only shelves
            ;;
        parts) bench parts --lengths 1024 8192 --only shelves Transformer-XL DeBERTa Shaw ;;
        switches) bench switches --rounds 5 ;;
        memory) bench memory ;;
        doctor) said doctor && "$python" -m anyformer doctor --length 8192 ;;
        tune) bench tune ;;
        *) echo "no such part: $part" >&2; exit 2 ;;
    esac
done
said done
cat "$OUT"/laws.*.log 2>/dev/null | grep -E "^all|broken|specs \(" | sort | uniq -c | sort -rn | head -20
