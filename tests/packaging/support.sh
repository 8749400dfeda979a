# shellcheck shell=bash
# Sourced by the packaging tests: checks that say what they expected, and a temporary directory
# ($work) that is gone at the end.

# shellcheck disable=SC2034 # for the tests
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/syncd-test.XXXXXX")
for variable in "${!SYNCD_@}"; do unset "$variable"; done

clean_up() {
  local status=$?
  local left
  mapfile -t left < <(jobs -p)
  if [[ ${#left[@]} -gt 0 ]]; then kill -KILL "${left[@]}" 2>/dev/null || true; fi
  rm -rf -- "$work"
  exit "$status"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Ends the test as one that could not be made here.
skip_all() {
  echo "skipped: $*"
  exit 77
}

# Runs "$@" and keeps what it wrote in $output and how it ended in $status.
capture() {
  status=0
  output=$("$@" 2>&1 </dev/null) || status=$?
}

expect_status() {
  if [[ $status -ne $1 ]]; then fail "expected exit $1, got $status, with the output: $output"; fi
}

expect_failure() {
  if [[ $status -eq 0 ]]; then fail "expected a failure, got exit 0, with the output: $output"; fi
}

expect_output() {
  local text
  for text in "$@"; do
    if [[ $output != *"$text"* ]]; then fail "expected '$text' in the output: $output"; fi
  done
}

expect_no_output() {
  if [[ $output == *"$1"* ]]; then fail "did not expect '$1' in the output: $output"; fi
}

expect_file() {
  local file
  for file in "$@"; do
    if [[ ! -e $file ]]; then fail "expected the file $file"; fi
  done
}

# Waits until "$@" succeeds; gives up after 20 seconds.
wait_until() {
  local i
  for ((i = 0; i < 200; i++)); do
    if "$@"; then return; fi
    sleep 0.1
  done
  fail "waited 20 s for: $*"
}

# Makes an executable $1 out of the lines on standard input.
make_program() {
  mkdir -p -- "$(dirname -- "$1")"
  { echo '#!/bin/bash' && cat; } >"$1"
  chmod +x "$1"
}
