#!/usr/bin/env bash
# megartp-dev: exit codes, messages and package detection, against a tree whose path holds a space and with stand-ins for the
# system's package tools. Nothing is installed or built.
set -euo pipefail

script=$1
folder=$(mktemp -d "${TMPDIR:-/tmp}/megartp dev test.XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
tree="$folder/a tree"
mkdir -p "$tree" "$folder/bin"
cp "$script" "$tree/megartp-dev"
cp "$(dirname "$script")/CMakePresets.json" "$tree/"
failures=0

# run EXPECTED_STATUS EXPECTED_TEXT command...
run() {
  local expected=$1 text=$2 status=0 output
  shift 2
  output=$(PATH="$folder/bin:$PATH" "$@" 2>&1 </dev/null) || status=$?
  if [[ $status != "$expected" || $output != *"$text"* ]]; then
    printf 'FAILED: %s\n  expected status %s with "%s"\n  got status %s with:\n%s\n' "$*" "$expected" "$text" "$status" "$output"
    failures=$((failures + 1))
  fi
}

# make NAME: a stand-in program with the body from stdin.
make() {
  { echo '#!/bin/sh'; cat; } >"$folder/bin/$1"
  chmod +x "$folder/bin/$1"
}

dev="$tree/megartp-dev"
cd /

run 0 'usage:' "$dev" help
run 0 'usage:' "$dev" --help
run 0 'usage:' "$dev"
run 2 "unknown command 'bogus'" "$dev" bogus
run 2 'MEGARTP_JOBS must be a positive number' env MEGARTP_JOBS=0 "$dev" help
run 2 "unknown group 'nothing'" "$dev" setup nothing
run 2 "unknown preset 'nothing'" "$dev" build nothing
run 2 "unknown sanitizer 'nothing'" "$dev" sanitize nothing
run 2 "unknown check 'nothing'" "$dev" check nothing
run 2 'fuzz takes a number of seconds' "$dev" fuzz soon

# A machine where everything is there: nothing happens, nothing is said.
make dpkg-query <<<'echo "ii "'
make apt-get <<<'echo apt-get must not run >&2; exit 99'
run 0 '' "$dev" setup all
[[ -z $(PATH="$folder/bin:$PATH" "$dev" setup build bench 2>&1) ]] || { echo 'FAILED: setup is not quiet'; failures=1; }

# A machine that lacks libfmt-dev.
make dpkg-query <<'BODY'
for last; do :; done
if [ "$last" = libfmt-dev ]; then exit 1; fi
echo "ii "
BODY
run 4 'missing packages: libfmt-dev (' env MEGARTP_NO_INSTALL=1 "$dev" setup build
make id <<<'echo 0'
make apt-get <<<"echo \"\$*\" >>'$folder/calls'"
run 0 'installing libfmt-dev' "$dev" setup build
expected=$'update\ninstall --yes --no-install-recommends libfmt-dev'
actual=$(sed -E 's/^(-[^ ]+ )*(-o [^ ]+ )?//' "$folder/calls")
if [[ $actual != "$expected" ]]; then
  printf 'FAILED: apt-get was called with\n%s\n' "$actual"
  failures=$((failures + 1))
fi
# As another user, through sudo.
make id <<<'echo 1000'
make sudo <<<"echo sudo >>'$folder/calls'; exec \"\$@\""
: >"$folder/calls"
run 0 'installing libfmt-dev' "$dev" setup build
[[ $(grep -c sudo "$folder/calls") == 2 ]] || { echo 'FAILED: sudo was not used'; failures=$((failures + 1)); }
# apt-get that fails.
make apt-get <<<'exit 100'
run 4 'apt-get update failed; missing packages: libfmt-dev' "$dev" setup build
# A package that was removed but left its configuration is missing.
make dpkg-query <<<'echo "rc "'
run 4 'libfmt-dev' env MEGARTP_NO_INSTALL=1 "$dev" setup build

if ((failures > 0)); then
  echo "$failures failures"
  exit 1
fi
echo 'all passed'
