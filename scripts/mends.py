#!/usr/bin/env python3
"""Takes the mend of each hole that was closed out again, one at a time, and looks whether its test notices: `make mends`.

tests/mutants/mends.json says what to put in the place of what, and which test is to notice: "engine_tests FILTER" (any
room's), "torture FIRST SEEDS", "e2e SCRIPT" or "blocking". Mends that are canaries of the torture are not listed: each is
taken out, and caught, by the test torture_canaries. A text that is not found any more is an error: the code has moved, and
the entry has to follow it.

  mends.py [WORD] [--jobs N]     only those whose sentence has the word
"""
import argparse
import concurrent.futures
import json
import os
import queue
import sys
import time

from mutants import PATIENCE, TOP, Lane, say

LIST = TOP / "tests" / "mutants" / "mends.json"


def command_of(lane, test):
    """What to build for a test, and how to run it."""
    kind, *words = test.split()
    if kind == "torture":
        return kind, [str(lane.build / "tests/torture/torture"), "--first", words[0], "--seeds", words[1], "--jobs", "1",
                      "--stop-after", "1"]
    if kind == "e2e":
        programs = [str(lane.build / "src/eplog"), str(lane.build / "tests/fault_fs")]
        return "eplog fault_fs", ["bash", str(lane.top / "tests/e2e" / words[0]), *programs]
    if kind == "blocking":
        return "eplog", ["ctest", "--test-dir", str(lane.build), "-R", "^blocking$", "--no-tests=error"]
    return kind, [str(lane.build / "tests" / kind), f"--gtest_filter={words[0]}", "--gtest_brief=1"]


def run(lane, test, timeout=None):
    """Exit status (None: it did not end) and output."""
    target, command = command_of(lane, test)
    status, out = lane.ninja(*target.split())
    if status != 0:
        sys.exit(f"{target} does not build: {out[-3000:]}")
    return lane.run(command, timeout, limited=True)


def changed(mend):
    """{file: text without the mend}"""
    texts = {}
    for edit in mend["edits"]:
        text = texts.get(edit["file"]) or (TOP / edit["file"]).read_text()
        if text.count(edit["take"]) != 1:
            sys.exit(f"{LIST.name}: of \"{mend['mend']}\", this is not once in {edit['file']}:\n{edit['take']}")
        texts[edit["file"]] = text.replace(edit["take"], edit["put"])
    return texts


def usual_seconds(lane, tests):
    """How long each takes while nothing is taken out, where others run beside it; all must pass."""
    usual = {}
    for test in tests:
        began = time.monotonic()
        status, out = run(lane, test)
        if status != 0:
            sys.exit(f"{test} fails though nothing is taken out: {out[-3000:]}")
        usual[test] = time.monotonic() - began
    return usual


def is_noticed(lane, mend, texts, seconds):
    for name, text in texts.items():
        (lane.top / name).write_text(text)
    try:
        status, _ = run(lane, mend["noticed_by"], seconds * PATIENCE + 60)
        return status != 0
    finally:
        for name in texts:
            (lane.top / name).write_text((TOP / name).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("word", nargs="?", default="", help="only those whose sentence has it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    wanted = parser.parse_args()
    mends = [mend for mend in json.loads(LIST.read_text()) if wanted.word in mend["mend"]]
    texts = [changed(mend) for mend in mends]
    made = [Lane(number) for number in range(min(wanted.jobs, max(len(mends), 1)))]
    for lane in made:
        lane.prepare()
    usual = usual_seconds(made[0], sorted({mend["noticed_by"] for mend in mends}))
    lanes = queue.Queue()
    for lane in made:
        lanes.put(lane)

    def judge(mend, without):
        lane = lanes.get()
        try:
            noticed = is_noticed(lane, mend, without, usual[mend["noticed_by"]])
        finally:
            lanes.put(lane)
        say(f"{'noticed' if noticed else 'MISSED ':8} {mend['mend']}  ({mend['noticed_by']})")
        return noticed

    with concurrent.futures.ThreadPoolExecutor(len(made)) as pool:
        try:
            noticed = list(pool.map(judge, mends, texts))
        except SystemExit:
            pool.shutdown(cancel_futures=True)
            raise
    say(f"{sum(noticed)} of {len(mends)} noticed")
    sys.exit(0 if mends and all(noticed) else 1)


if __name__ == "__main__":
    os.chdir(TOP)
    main()
