# What tests of the command line share: commands with the exit status and output that they must have. Source it in the
# test's own directory $WORK, after `set -u`; at the end, $FAILURES says how many were otherwise.
# shellcheck shell=bash
# The leak check stops all threads at the end of a process, and waits for ever for one that hangs in the kernel, as some
# are made to here. The unit tests have it.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
FAILURES=0

say() { printf '%s\n' "$*"; }
section() { say "== $*"; }
fail() {
  say "FAILED: $*"
  FAILURES=$((FAILURES + 1))
}

# run STATUS COMMAND...: the exit status must be this. Output is kept in out and err.
run() {
  local expected=$1
  shift
  "$@" >"$WORK/out" 2>"$WORK/err"
  local status=$?
  [ $status -eq "$expected" ] ||
    fail "exit status $status instead of $expected: $* ($(head -c 300 "$WORK/err"))"
}

# refused STATUS REGEX COMMAND...: one line on standard error that matches, nothing on standard output.
refused() {
  local expected=$1 regex=$2
  shift 2
  run "$expected" "$@"
  [ "$(wc -l <"$WORK/err")" -eq 1 ] || fail "not one line but: $(cat "$WORK/err") <- $*"
  grep -Eq -- "$regex" "$WORK/err" || fail "'$(cat "$WORK/err")' does not match '$regex' <- $*"
  [ -s "$WORK/out" ] && fail "wrote to standard output: $(cat "$WORK/out") <- $*"
  say "  $(cat "$WORK/err")"
}

out_has() { grep -Eq -- "$1" "$WORK/out" || fail "output lacks '$1': $(head -c 600 "$WORK/out")"; }

# check PYTHON-EXPRESSION [FILE]: over the JSON document d and its policies p.
check() {
  local file=${2:-$WORK/out}
  python3 -c "import json,sys; d=json.load(open('$file')); p=d.get('policies',{}) if isinstance(d,dict) else {}; sys.exit(0 if ($1) else 1)" ||
    fail "not so: $1 in $(head -c 600 "$file")"
}
