#!/usr/bin/env python3
"""Breaks the program in small ways, one at a time, and looks whether its tests notice: `make mutants`.

Breaks are drawn by universalmutator's rules for C++ over the rooms whose faults cost data. Each is built in a tree of its
own; what compiles to the same code is drawn anew. Then 600 seeds of the torture (but for the front end, which it does not
drive), the unit tests of the room, and those of what stands on it (BESIDES, TRIED_WHOLE): one that fails, crashes or does
not end has noticed. The score counts those that change behaviour; a survivor that changes none is listed with its reason in
tests/mutants/equivalent.json.

A run that was cut short goes on where it was: what was judged is kept in build/mutants/seed-S.jsonl.

  mutants.py N SEED
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import queue
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOMS = ["engine", "metadata", "space", "rings", "runtime", "control", "report", "host", "frontend"]
NOT_TORTURED = {"control", "report", "host", "frontend"}
# What else drives a room than the tests that bear its name.
BESIDES = {"metadata": ["engine_tests"], "space": ["engine_tests"], "rings": ["engine_tests"],
           "control": ["frontend_tests", "host_tests"], "report": ["frontend_tests", "cli_tests"],
           "runtime": ["device_tests", "engine_tests"], "host": ["frontend_tests", "cli_tests"],
           "frontend": ["serving_tests", "cli_tests"]}
# What of a room only shows in the whole program: scripts of tests/e2e.
TRIED_WHOLE = {room: ["cli_test.sh", "limits_test.sh", "spare_test.sh"] for room in sorted(NOT_TORTURED)}
# Whatever a broken program has mounted or left running goes with the test that started it. Control sockets are named by
# arrays, and arrays of tests are alike: those of one tree are not to be met in the other.
ALONE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
         'mkdir -p /run/eplog && mount -t tmpfs -o mode=0700 sockets /run/eplog && exec "$@"', "sh"]
SEEDS = 600
RULES = ["universal.rules", "c_like.rules", "cpp.rules"]
# Neither a comment nor what only says something to people or to the compiler.
IGNORED = [r"^\s*//", r"^\s*#", r"^\s*(namespace|using|static_assert)\b", r"^\s*[{}]+;?\s*$", r"^\s*}\s*//"]
PATIENCE = 6  # times what a test takes when nothing is broken
TOP = Path(__file__).resolve().parent.parent
WORK = TOP / "build" / "mutants"


def units_of(room):
    """The tests of a room's wings and its own, and those of what stands on it."""
    folder = TOP / "tests" / room
    wings = sorted({f"{room}_{path.parent.name}_tests" for path in folder.glob("*/*_test.cc")})
    own = [f"{room}_tests"] if folder.is_dir() else []
    return wings + own + BESIDES.get(room, [])


def say(text):
    print(text, flush=True)


def draw_all():
    """Every break there is: (file, line number, text of the line, text instead)."""
    from universalmutator import mutator
    import contextlib
    import io

    found = []
    for room in ROOMS:
        for path in sorted((TOP / "src" / room).rglob("*.cc")):
            lines = path.read_text().splitlines(keepends=True)
            with contextlib.redirect_stdout(io.StringIO()):
                mutants = mutator.mutants_regexp(lines, ruleFiles=RULES, ignorePatterns=IGNORED, ignoreStringOnly=True)
            name = str(path.relative_to(TOP))
            found += [(name, mutant[0], lines[mutant[0] - 1], mutant[1]) for mutant in mutants]
    return found


def bounded():
    """A break may ask for all the memory there is: then it is the first to go."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Lane:
    """A copy of the sources and a build of it, for one break after the other."""

    def __init__(self, number):
        self.top = WORK / f"lane-{number}"
        self.build = self.top / "build" / "check"
        # What one tree has compiled, the others find in ccache.
        self.environment = os.environ | {"CCACHE_BASEDIR": str(self.top), "CCACHE_NOHASHDIR": "1"}

    def run(self, command, timeout=None, limited=False):
        """Exit status and output; None: it did not end."""
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen(ALONE + command if limited else command, cwd=self.top, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out, start_new_session=True, preexec_fn=bounded if limited else None)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                try:
                    os.killpg(process.pid, 9)
                except ProcessLookupError:
                    pass
                process.wait()
            out.seek(0)
            return status, out.read().decode(errors="replace")

    def ninja(self, *targets, jobs=1):
        return self.run(["ninja", "-C", str(self.build), "-j", str(jobs), *targets])

    def prepare(self):
        self.copy_sources()
        # What is broken may leave a variable unused.
        status, out = self.run(["cmake", "--preset", "check", "-DCMAKE_COMPILE_WARNING_AS_ERROR=OFF"])
        if status == 0:
            targets = sorted({test for room in ROOMS for test in units_of(room)})
            status, out = self.ninja("torture", "eplog", *targets, jobs=os.cpu_count())
        if status != 0:
            sys.exit(f"the sources do not build as they are: {out[-2000:]}")

    def copy_sources(self):
        names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, check=True, capture_output=True,
                               text=True).stdout.splitlines()
        wanted = {name for name in names if (TOP / name).is_file()}
        for name in wanted:
            source, target = TOP / name, self.top / name
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        for stale in (p for p in (self.top / "src").rglob("*.cc") if str(p.relative_to(self.top)) not in wanted):
            stale.unlink()

    def code_of(self, name):
        """What a source compiles to, without what only debuggers read; None: it does not compile."""
        source = Path(name).relative_to("src")
        target = f"src/CMakeFiles/eplog_{'_'.join(source.parts[:-1])}.dir/{source}.o"
        status, _ = self.ninja(target)
        if status != 0:
            return None
        with tempfile.NamedTemporaryFile() as stripped:
            subprocess.run(["objcopy", "--strip-debug", str(self.build / target), stripped.name], check=True)
            return hashlib.sha256(Path(stripped.name).read_bytes()).hexdigest()

    def tests_of(self, name):
        room = name.split("/")[1]
        torture = "torture", ["tests/torture/torture", "--seeds", str(SEEDS), "--first", "1", "--jobs", "1", "--stop-after", "1"]
        units = [(test, [f"tests/{test}", "--gtest_brief=1", "--gtest_fail_fast"]) for test in units_of(room)]
        whole = [(script, ["bash", str(self.top / "tests/e2e" / script), str(self.build / "src/eplog")])
                 for script in TRIED_WHOLE.get(room, [])]
        # What is quick comes first.
        yield from units[:-1]
        if room not in NOT_TORTURED:
            yield torture
        yield from units[-1:]
        yield from whole

    @staticmethod
    def target_of(test):
        return "eplog" if test.endswith(".sh") else test

    def test(self, command, timeout):
        program = command[0] if "/" not in command[0] else str(self.build / command[0])
        return self.run([program, *command[1:]], timeout, limited=True)

    def judge(self, break_, usual):
        name, number, before, after = break_
        path = self.top / name
        original = path.read_text()
        whole = self.code_of(name)
        lines = original.splitlines(keepends=True)
        assert lines[number - 1] == before, f"{name}:{number} is not what was drawn"
        lines[number - 1] = after
        try:
            path.write_text("".join(lines))
            code = self.code_of(name)
            if code is None:
                return "does not build", ""
            if code == whole:
                return "same code", ""
            for test, command in self.tests_of(name):
                status, out = self.ninja(self.target_of(test))
                if status != 0:
                    return "does not build", ""
                status, out = self.test(command, usual[test] * PATIENCE + 60)
                if status is None:
                    return f"noticed by {test}", "it does not end"
                if status != 0:
                    said = re.search(r"caught|seed \d+.*|\[  FAILED  \] .*", out)
                    return f"noticed by {test}", said.group(0)[:300] if said else f"exit status {status}"
            return "survived", ""
        finally:
            path.write_text(original)


def measure(lane):
    """How long each test takes when nothing is broken; all must pass."""
    usual = {}
    for room in ROOMS:
        for test, command in lane.tests_of(f"src/{room}/any.cc"):
            if test in usual:
                continue
            began = time.monotonic()
            status, out = lane.test(command, None)
            if status != 0:
                sys.exit(f"{test} fails though nothing is broken: {out[-2000:]}")
            usual[test] = time.monotonic() - began
    return usual


def load_equivalents():
    path = TOP / "tests" / "mutants" / "equivalent.json"
    listed = json.loads(path.read_text()) if path.exists() else []
    return {(entry["file"], entry["line"], entry["instead"]): entry["why"] for entry in listed}


def key_of(break_):
    return break_[0], break_[2].strip(), break_[3].strip()


class Tally:
    def __init__(self, path, wanted):
        self.path = path
        self.wanted = wanted
        self.lock = threading.Lock()
        self.results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.equivalents = load_equivalents()

    def judged(self):
        return {tuple(result["break"]) for result in self.results}

    def counted(self):
        return [r for r in self.results if r["verdict"] not in ("does not build", "same code") and not self.equivalent(r)]

    def equivalent(self, result):
        return result["verdict"] == "survived" and key_of(result["break"]) in self.equivalents

    def add(self, break_, verdict, said, seconds):
        with self.lock:
            self.results.append({"break": break_, "verdict": verdict, "said": said, "seconds": round(seconds, 1)})
            with self.path.open("a") as out:
                out.write(json.dumps(self.results[-1]) + "\n")
            if verdict not in ("does not build", "same code"):
                say(f"{len(self.counted()):4} of {self.wanted}  {verdict:24} {break_[0]}:{break_[1]}  {said[:100]}")

    def report(self):
        counted = self.counted()
        survivors = [r for r in counted if r["verdict"] == "survived"]
        verdicts = [r["verdict"] for r in self.results]
        say(f"\n{len(self.results)} breaks drawn: {verdicts.count('does not build')} do not build, "
            f"{verdicts.count('same code')} compile to the same code, "
            f"{sum(self.equivalent(r) for r in self.results)} are listed as changing nothing.")
        for verdict in sorted(set(r["verdict"] for r in counted)):
            say(f"  {verdict}: {sum(r['verdict'] == verdict for r in counted)}")
        if counted:
            say(f"noticed: {len(counted) - len(survivors)} of {len(counted)}, "
                f"{100 * (len(counted) - len(survivors)) / len(counted):.1f} %")
        for r in survivors:
            name, number, before, after = r["break"]
            say(f"\nsurvived: {name}:{number}\n- {before.strip()}\n+ {after.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("n", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--report", action="store_true", help="only say what is known")
    wanted = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    tally = Tally(WORK / f"seed-{wanted.seed}.jsonl", wanted.n)
    if wanted.report:
        tally.report()
        return
    breaks = draw_all()
    random.Random(wanted.seed).shuffle(breaks)
    done = tally.judged()
    todo = iter([b for b in breaks if b not in done])
    say(f"{len(breaks)} breaks to draw from; building {wanted.jobs} trees")
    lanes = queue.Queue()
    with concurrent.futures.ThreadPoolExecutor(wanted.jobs) as pool:
        made = [Lane(number) for number in range(wanted.jobs)]
        for lane in made:
            lane.prepare()
        usual = measure(made[0])
        say("usual seconds: " + ", ".join(f"{test} {seconds:.0f}" for test, seconds in usual.items()))
        for lane in made:
            lanes.put(lane)
        drawing = threading.Lock()

        def work(_):
            lane = lanes.get()
            while True:
                with drawing:
                    if len(tally.counted()) >= wanted.n:
                        return
                    break_ = next(todo, None)
                if break_ is None:
                    return
                began = time.monotonic()
                verdict, said = lane.judge(break_, usual)
                tally.add(break_, verdict, said, time.monotonic() - began)

        list(pool.map(work, range(wanted.jobs)))
    tally.report()


if __name__ == "__main__":
    main()
