#!/usr/bin/env bash
# The tour of README.md, run as it stands there: every ```sh block below its heading, in one shell that stops at the
# first command that fails, in an empty directory, with the built program first in PATH.
#
#   tour_test.sh PATH-TO-EPLOG
source "$(dirname "$0")/lib.sh" "$1"
readme=$(realpath "$(dirname "$0")/../../README.md")

need_fuse
need_programs sha256sum sed dd
make_work

awk '
  /^## / { tour = ($0 == "## A tour of five minutes") }
  tour && /^```/ { inside = ($0 == "```sh"); next }
  tour && inside
' "$readme" >"$WORK/tour.sh"
[ "$(grep -c '^eplog ' "$WORK/tour.sh")" -ge 10 ] || die "there is no tour in $readme"

mkdir "$WORK/bin" "$WORK/empty"
ln -s "$EPLOG" "$WORK/bin/eplog"
MNT=$WORK/empty/mnt  # for the end: whatever the tour leaves mounted is taken down
cd "$WORK/empty" || die "no directory to work in"
status=0
# From a pipe the commands that read standard input would eat the tour, and the prompt of set -x shows where it is.
PATH=$WORK/bin:$PATH timeout 3600 bash -eux -o pipefail "$WORK/tour.sh" </dev/null 2>&1 || status=$?
cd / || exit 1
[ $status -eq 0 ] || die "the tour stops with exit status $status"
say "the tour runs as it is written"
