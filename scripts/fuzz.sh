#!/usr/bin/env bash
# Runs each libFuzzer program of a build for so many seconds, beginning with the corpus. What it finds is kept in the build.
#
#   fuzz.sh BUILD SECONDS
set -euo pipefail
build=$(realpath "$1")
seconds=$2
corpus=$(realpath "$(dirname "$0")/../tests/fuzz/corpus")
failed=()
for program in "$build"/tests/fuzz/fuzz_*; do
  name=${program##*/fuzz_}
  if [ ! -x "$program" ] || [ ! -d "$corpus/$name" ]; then continue; fi
  mkdir -p "$build/found/$name"
  (cd "$build/found" && "$program" -max_total_time="$seconds" -max_len=5000 -print_final_stats=1 -artifact_prefix="$name-" \
    "$name" "$corpus/$name") || failed+=("$name")
done
if [ ${#failed[@]} -ne 0 ]; then
  echo "failed: ${failed[*]}; the inputs are in $build/found"
  exit 1
fi
