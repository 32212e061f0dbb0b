#!/usr/bin/env bash
# Checks and times attention-pre on this machine's GPU; builds nothing. A few minutes.
#
#   bench/device/attention_pre.sh MEGARTP [OUT] [REPLAYS] [CONFORMANCE_TEST]
#
# MEGARTP is the tool, OUT a folder for results (default: ./device-results), REPLAYS the number of replays that are compared bit for bit
# (default 10000), CONFORMANCE_TEST conformance_device_test, which runs the fixtures of tests/golden on the GPU (from the repository's root).
# Every step's output goes to a file in OUT and to stdout. Exit status 1 when a step failed.
set -uo pipefail

if [[ $# -lt 1 || $# -gt 4 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
megartp=$1
out=${2:-device-results}
replays=${3:-10000}
conformance=${4:-}
here=$(dirname "$0")
model=glm52-attention-pre
mkdir -p "$out" || exit 5
# shellcheck source=bench/device/steps.sh
source "$here/steps.sh"

# --- is it right?
step doctor "$megartp" doctor
for backend in serial pdl dag cmp mega; do
  step "check_$backend" "$megartp" run "$model" --backend "$backend" --check
done
# A process a fixture: a fault in one leaves the others their context.
if [[ -n $conformance ]]; then
  for fixture in tiny_a ragged deepseek_v32 hadamard_pow2 shared_layer; do
    step "fixture_$fixture" "$conformance" --gtest_filter="*FixtureOnDevice.*/$fixture"
  done
fi
# Ragged and small batches, one request and several.
for sizes in '1 1 1' '3 200 1' '5 70 3' '33 2049 3' '64 8192 2' '128 900 4' '256 8192 4'; do
  read -r m kv requests <<< "$sizes"
  step "check_m${m}_kv${kv}_r${requests}" "$megartp" run "$model" --backend cmp --check --m "$m" --kv "$kv" --requests "$requests"
done
for sizes in '1 1 1' '3 200 1' '16 70000 2' '33 2049 3' '64 8192 2' '128 900 4' '256 900 4'; do
  read -r m kv requests <<< "$sizes"
  step "check_mega_m${m}_kv${kv}_r${requests}" "$megartp" run "$model" --backend mega --check --m "$m" --kv "$kv" --requests "$requests"
done
# All five backends at once.
step replays "$megartp" run "$model" --backend mega --replays "$replays" --no-progress
step replays_fuzz "$megartp" run "$model" --backend mega --fuzz --replays "$((replays / 10))" --no-progress
step replays_m33 "$megartp" run "$model" --backend cmp --m 33 --kv 2049 --requests 3 --replays "$((replays / 10))" --no-progress
if command -v compute-sanitizer > /dev/null; then
  # Op by op, and without the reports that the tool makes of a CTA's copies to itself.
  step sanitizer_memcheck python3 "$here/memcheck.py" "$megartp" --out "$out"
  step sanitizer_racecheck compute-sanitizer --tool racecheck --error-exitcode 1 "$megartp" run "$model" --backend cmp --m 3 --kv 200 \
    --requests 1
fi

# --- how fast?
step bench_main "$megartp" bench "$model" --backends serial,pdl,dag,cmp,mega --repeat 300
# A hundred thousand runs, each of which would end in an error where a wait took too long.
step bench_many "$megartp" bench "$model" --backends mega --repeat 100000 --no-same --no-read --span none
step bench_main_json "$megartp" bench "$model" --backends serial,pdl,dag,cmp,mega --repeat 300 --json
step bench_sweep "$megartp" bench "$model" --backends serial,pdl,dag,cmp,mega --m 1,4,16,64,128,256 --kv 2048,8192,32768 --repeat 100 \
  --no-same
step bench_long "$megartp" bench "$model" --backends serial,pdl,dag,cmp,mega --m 1,16,256 --kv 131072 --repeat 50 --copies 3 --no-same
step bench_ablation "$megartp" bench "$model" --ablation --repeat 300
step bench_growing "$megartp" bench "$model" --growing --backends serial,cmp,mega --repeat 200 --no-same
if python3 -c 'import torch' 2> /dev/null; then
  step bench_gemm_alone python3 "$here/gemm_alone.py" "$megartp" --repeat 300
fi
step bench_pdl "$megartp" bench "$model" --pdl-case 1 --pdl-case 2 --repeat 200 --no-same
step bench_tune "$megartp" bench "$model" --tune-edges --repeat 200 --no-progress

end_steps
