#!/usr/bin/env bash
# Runs each libFuzzer program of a build for so many seconds, beginning with the corpus, as many at once as there are
# processors. What it finds is kept in the build.
#
#   fuzz.sh BUILD SECONDS
set -euo pipefail
build=$(realpath "$1")
seconds=$2
corpus=$(realpath "$(dirname "$0")/../tests/fuzz/corpus")
mkdir -p "$build/found"

fuzz() {  # NAME
  mkdir -p "$build/found/$1"
  cd "$build/found"
  if "$build/tests/fuzz/fuzz_$1" -max_total_time="$seconds" -max_len=5000 -print_final_stats=1 -artifact_prefix="$1-" "$1" \
    "$corpus/$1" >"$1.log" 2>&1; then
    echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$1.log") inputs in $seconds s, nothing found"
  else
    echo "$1: FAILED"
    tail -n 60 "$1.log"
    return 1
  fi
}
export -f fuzz
export build seconds corpus

names=()
for program in "$build"/tests/fuzz/fuzz_*; do
  name=${program##*/fuzz_}
  if [ -x "$program" ] && [ -d "$corpus/$name" ]; then names+=("$name"); fi
done
[ ${#names[@]} -ne 0 ] || { echo "there is no fuzzer in $build/tests/fuzz"; exit 1; }
if ! printf '%s\n' "${names[@]}" | xargs -P "$(nproc)" -I NAME bash -c 'fuzz NAME'; then
  echo "the inputs are in $build/found"
  exit 1
fi
