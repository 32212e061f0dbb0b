# shellcheck shell=bash disable=SC2154
# Steps of the device scripts: `source steps.sh` with $out set, then `step NAME COMMAND...`, and `end_steps` last.
failed=()

# step NAME COMMAND...: its output is kept in $out/NAME.txt; a status other than 0 is remembered.
step() {
  local name=$1 status
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$out/$name.txt"
  status=${PIPESTATUS[0]}
  if [[ $status -ne 0 ]]; then
    printf '== %s: exit status %s\n' "$name" "$status"
    failed+=("$name")
  fi
}

# Exit status 1 when a step failed.
end_steps() {
  printf '\n'
  if [[ ${#failed[@]} -ne 0 ]]; then
    printf 'failed: %s\n' "${failed[*]}"
    exit 1
  fi
  printf 'all steps passed\n'
  exit 0
}
