#!/usr/bin/env python3
"""What faults_test.sh needs besides the shell.

damage FILE FROM TO SHARE SEED       overwrites this share of the 4 KiB blocks of FILE between two offsets with random bytes,
                                     behind the back of whoever has it open; prints how many
is STATUS EXPRESSION                 whether an expression over `d`, the document of eplog status, and `device(NAME)` is true
judge STATUS EVENTS SEEN DEVICE...   only these devices may have errors, by the counters and by the events after the first
                                     SEEN, and every device must be ok; nothing may have been lost
stall JSON... LIMIT                  the longest request of all these runs of fio, in milliseconds. Exit status 1: it is longer
"""
import json
import mmap
import os
import random
import sys

BLOCK = 4096
ERRORS = ("read_errors", "write_errors", "corrupt_chunks")
NOT_BLAME = ("slow_device",)  # a busy machine makes one
LOSSES = ("stopped", "corruption_lost")


def load(path):
    """A document, also one that fio has put messages before."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return json.loads(text[text.index("{"):])


def damage(path, first, last, share, seed):
    rng = random.Random(seed)
    blocks = range(int(first) // BLOCK, int(last) // BLOCK)
    chosen = rng.sample(blocks, max(1, int(len(blocks) * float(share))))
    page = mmap.mmap(-1, BLOCK)  # aligned, as direct writes need it
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    for block in chosen:
        page[:] = rng.randbytes(BLOCK)
        if os.pwrite(fd, page, block * BLOCK) != BLOCK:
            sys.exit("%s: a short write" % path)
    os.close(fd)
    print(len(chosen))


def holds(status_path, expression):
    status = load(status_path)
    devices = {device["name"]: device for device in status["devices"]}
    sys.exit(0 if eval(expression, {"d": status, "device": devices.__getitem__}) else 1)  # pylint: disable=eval-used


def judge(status_path, events_path, seen, *blamed):
    wrong = []
    for device in load(status_path)["devices"]:
        name = device["name"]
        if device["state"] != "ok":
            wrong.append("%s is %s (%s)" % (name, device["state"], device.get("failed_because")))
        errors = {key: device[key] for key in ERRORS if device[key]}
        if errors and name not in blamed:
            wrong.append("%s is blamed: %s" % (name, errors))
    with open(events_path, encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines][int(seen):]
    for event in events:
        innocent = event["device"] and event["device"] not in blamed and event["event"] not in NOT_BLAME
        if innocent or event["event"] in LOSSES:
            wrong.append("event %s: %s" % (event["event"], event["text"]))
    if wrong:
        sys.exit("only %s had a fault, and %d things are wrong: %s" % (" and ".join(blamed), len(wrong), "; ".join(wrong[:10])))


def stall(*arguments):
    longest = 0
    for path in arguments[:-1]:
        for job in load(path)["jobs"]:
            for direction in ("read", "write"):
                longest = max(longest, job[direction]["clat_ns"]["max"])
    print(round(longest / 1e6))
    sys.exit(0 if longest / 1e6 <= float(arguments[-1]) else 1)


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    {"damage": damage, "is": holds, "judge": judge, "stall": stall}[verb](*arguments)


main()
