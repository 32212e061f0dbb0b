#!/usr/bin/env bash
# Records traces of attention-pre on this machine's GPU, shows where their time went, and compares them with the simulator; builds nothing.
# About a minute on an H200.
#
#   bench/device/traces.sh MEGARTP [OUT] [PAIRS]
#
# MEGARTP is the tool, OUT a folder for results (default: ./device-traces), PAIRS the number of runs without and with recording that its cost is
# told from (default 200). OUT/BACKEND.trace are the traces, OUT/BACKEND.svg pictures, OUT/traces.html serial, cmp and mega in one page,
# OUT/sizes.txt a table of cmp's and mega's critical paths at the sizes of docs/performance.md. Every step's output goes to a file in OUT and to
# stdout. Exit status 1 when a step failed, or a prediction is more than 15 % off.
set -uo pipefail

if [[ $# -lt 1 || $# -gt 3 ]]; then
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
megartp=$1
out=${2:-device-traces}
pairs=${3:-200}
here=$(dirname "$0")
model=glm52-attention-pre
mkdir -p "$out" || exit 5
# shellcheck source=bench/device/steps.sh
source "$here/steps.sh"

for backend in serial pdl dag cmp mega; do
  rm -f "$out/$backend.trace"
  step "record_$backend" "$megartp" trace record "$model" --backend "$backend" --repeat 20 --cost "$pairs" -o "$out/$backend.trace"
  step "path_$backend" "$megartp" trace show "$out/$backend.trace" --width 160 --lanes 16
  step "svg_$backend" "$megartp" trace show "$out/$backend.trace" --format svg -o "$out/$backend.svg"
done
step html "$megartp" trace show "$out/serial.trace" "$out/cmp.trace" "$out/mega.trace" --format html -o "$out/traces.html"
step summaries "$megartp" trace show "$out/serial.trace" "$out/pdl.trace" "$out/dag.trace" "$out/cmp.trace" "$out/mega.trace" --json

for backend in serial pdl dag cmp mega; do
  step "simulated_$backend" "$megartp" trace simulate "$model" --backend "$backend" --against "$out/$backend.trace" --max-error 15
done

# Why cmp or mega is the faster one, size by size.
size_traces=()
for sizes in 1:2048 1:8192 1:32768 1:131072 4:2048 4:8192 4:32768 16:2048 16:8192 16:32768 16:131072 64:2048 64:8192 64:32768 128:2048 128:8192 \
  128:32768 256:2048 256:8192 256:32768 256:131072; do
  for backend in cmp mega; do
    name="${backend}_m${sizes%:*}_kv${sizes#*:}"
    rm -f "$out/$name.trace"
    step "record_$name" "$megartp" trace record "$model" --backend "$backend" --m "${sizes%:*}" --kv "${sizes#*:}" --repeat 20 --cost 1 \
      -o "$out/$name.trace"
    if [[ -f $out/$name.trace ]]; then size_traces+=("$out/$name.trace"); fi
  done
done
if [[ ${#size_traces[@]} -ne 0 ]]; then
  step sizes_json "$megartp" trace show "${size_traces[@]}" --json
  step sizes python3 "$here/size_table.py" "$out/sizes_json.txt"
fi

end_steps
