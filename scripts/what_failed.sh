#!/usr/bin/env bash
# The end of what each test printed that failed last, after everything else: who reads only the end of a long output must
# see why, too.
#
#   what_failed.sh BUILD [LINES]
set -euo pipefail
readonly LOGS=$1/Testing/Temporary
readonly LINES_EACH=${2:-40}
[ -s "$LOGS/LastTestsFailed.log" ] || exit 0
while IFS=: read -r _ name; do
  printf '\n---- %s, the end of what it printed:\n' "$name"
  awk -v name="$name" '
    $2 == "Testing:" { inside = $3 == name; next }
    /^<end of output>/ { inside = 0 }
    inside { print }' "$LOGS/LastTest.log" | tail -n "$LINES_EACH" | cut -c -400
done <"$LOGS/LastTestsFailed.log"
