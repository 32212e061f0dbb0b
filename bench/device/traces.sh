#!/usr/bin/env bash
# Records traces of attention-pre on this machine's GPU, shows where their time went, and compares them with the simulator; builds nothing.
# A minute or two.
#
#   bench/device/traces.sh MEGARTP [OUT] [PAIRS]
#
# MEGARTP is the tool, OUT a folder for results (default: ./device-traces), PAIRS the number of runs without and with recording that its cost is
# told from (default 200). OUT/BACKEND.trace are the traces, OUT/BACKEND.svg pictures, OUT/traces.html serial, cmp and mega in one page. Every
# step's output goes to a file in OUT and to stdout. Exit status 1 when a step failed, or a prediction is more than 15 % off.
set -uo pipefail

if [[ $# -lt 1 || $# -gt 3 ]]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
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
  step "record_$backend" "$megartp" trace record "$model" --backend "$backend" --repeat 20 --cost "$pairs" -o "$out/$backend.trace"
  step "path_$backend" "$megartp" trace show "$out/$backend.trace" --width 160 --lanes 16
  step "svg_$backend" "$megartp" trace show "$out/$backend.trace" --format svg -o "$out/$backend.svg"
done
step html "$megartp" trace show "$out/serial.trace" "$out/cmp.trace" "$out/mega.trace" --format html -o "$out/traces.html"
step summaries "$megartp" trace show "$out/serial.trace" "$out/pdl.trace" "$out/dag.trace" "$out/cmp.trace" "$out/mega.trace" --json

for backend in serial pdl dag cmp mega; do
  step "simulated_$backend" "$megartp" trace simulate "$model" --backend "$backend" --against "$out/$backend.trace" --max-error 15
done

end_steps
