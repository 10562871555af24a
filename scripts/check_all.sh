#!/usr/bin/env bash
# Everything that tells whether the program is sound, one after the other: `make check-all`. Goes on after a failure, and
# says at the end what passed. The output of each part is kept in build/check-all.
#
# From the environment: SEEDS (10000) of the torture from FIRST on (the clock chooses), FUZZ_SECONDS (60) for each decoder,
# PARTS (all of them), JOBS.
set -uo pipefail
cd "$(dirname "$0")/.."
JOBS=${JOBS:-$(nproc)}
SEEDS=${SEEDS:-10000}
FIRST=${FIRST:-$(($(date +%s) % 1000000 * 10000))}
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
PARTS=${PARTS:-asan tsan tidy faults fuzz torture}
readonly SKIPPED=77
LOGS=build/check-all
mkdir -p "$LOGS"

make_() { make --no-print-directory JOBS="$JOBS" "$@"; }

asan() { make_ asan; }
tsan() { make_ tsan; }
tidy() { make_ tidy; }
fuzz() { make_ fuzz FUZZ_SECONDS="$FUZZ_SECONDS"; }
torture() { make_ torture SEEDS="$SEEDS" FIRST="$FIRST"; }
faults() {  # every case, of which `make test` takes some
  cmake --preset check && cmake --build --preset check --parallel "$JOBS" --target eplog &&
    bash tests/e2e/faults_test.sh build/check/src/eplog
}

summary=()
failed=0
for part in $PARTS; do
  printf '%s ...\n' "$part"
  began=$(date +%s)
  "$part" >"$LOGS/$part.log" 2>&1
  status=$?
  case $status in
    0) what=passed ;;
    "$SKIPPED") what="skipped: $(grep -m 1 SKIPPED "$LOGS/$part.log")" ;;
    *)
      what="FAILED ($status), see $LOGS/$part.log"
      failed=1
      tail -n 20 "$LOGS/$part.log"
      ;;
  esac
  # What a part could not test on this machine is no pass.
  left_out=$(grep -c '\*\*\*Skipped' "$LOGS/$part.log")
  [ "$left_out" -eq 0 ] || what="$what; $left_out tests skipped, by name in the log"
  summary+=("$(printf '%-8s %s, %d s' "$part" "$what" $(($(date +%s) - began)))")
done
printf '\n'
printf '%s\n' "${summary[@]}"
[ $failed -eq 0 ] && echo 'Nothing failed.' || echo 'Not everything passed.'
exit $failed
