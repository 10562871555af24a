#!/usr/bin/env python3
"""What is looked at without running anything: `make lint`.

* Every source is as clang-format leaves it.
* clang-tidy finds nothing in what the last commits changed (`make tidy` looks at all of src).
* Every room has a folder of tests, every test is registered, and no test compares how long something took.
* Rooms and long parts stay within bounds.

  lint.py [--commits N] [--most N] [--jobs N]

Where clang or the history is not to be had, what needs it is left out and said.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SOURCES = ["src", "include", "tests", "bench"]
# A clock in a test is for waiting with patience, or for what is no test.
CLOCK = re.compile(r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday|time\.monotonic|time\.time)\b")
COMPARED = re.compile(r"\b(EXPECT|ASSERT)_(LT|LE|GT|GE|NEAR)\b.*\b(elapsed|seconds|took|duration|now\(\))", re.I)
LONGEST_FILE = 700


def run(*command, **options):
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, **options)


def sources(*folders, kinds=(".cc", ".h")):
    return sorted(p for folder in folders for p in (TOP / folder).rglob("*") if p.suffix in kinds)


def shown(path):
    return str(path.relative_to(TOP))


def unformatted(jobs):
    if not shutil.which("clang-format-14"):
        print("without clang-format-14 nobody looks at the formatting")
        return []
    files = [str(p) for p in sources(*SOURCES)]
    parts = [files[i::jobs] for i in range(jobs)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        said = pool.map(lambda part: run("clang-format-14", "--dry-run", *part).stderr, parts)
    found = sorted({m.group(1) for text in said for m in re.finditer(r"^(\S+?):\d+:\d+: warning", text, re.M)})
    return [f"{shown(Path(p))} is not formatted: clang-format-14 -i {shown(Path(p))}" for p in found]


def changed_sources(commits):
    """Sources of src that the last commits changed and that are still there, the newest first."""
    # A clone may belong to somebody else than who looks at it.
    log = run("git", "-c", "safe.directory=*", "log", f"-{commits}", "--name-only", "--format=", "--", "src")
    if log.returncode != 0:
        return None
    names = dict.fromkeys(name for name in log.stdout.splitlines() if name.endswith(".cc"))
    status = run("git", "-c", "safe.directory=*", "status", "--porcelain", "--", "src").stdout.splitlines()
    names = dict.fromkeys([line[3:] for line in status if line.endswith(".cc")]) | names
    return [name for name in names if (TOP / name).is_file()]


def untidy(commits, most, jobs):
    names = changed_sources(commits)
    if names is None or not shutil.which("clang-tidy-14"):
        print("clang-tidy is left out: " + ("git does not say what the last commits changed" if names is None
                                            else "it is not installed"))
        return []
    left = len(names) - most
    names = names[:most]
    print(f"clang-tidy: {len(names)} sources that the last {commits} commits changed"
          + (f"; {left} more are left to `make tidy`" if left > 0 else ""), flush=True)
    configured = run("cmake", "--preset", "tidy")
    if configured.returncode != 0:
        return [f"cmake --preset tidy: {configured.stderr.strip()}"]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda name: run("clang-tidy-14", "--quiet", "-p", "build/tidy", name), names)
    return [f"{name}:\n{r.stdout.strip()}" for name, r in zip(names, results) if r.returncode != 0]


def rooms_without_tests():
    rooms = [p.name for p in sorted((TOP / "src").iterdir()) if p.is_dir()]
    return [f"src/{room} has no folder tests/{room}" for room in rooms
            if not any((TOP / "tests" / room).glob("*_test.cc"))]


def unregistered_tests():
    lists = "".join(p.read_text() for p in (TOP / "tests").rglob("CMakeLists.txt"))
    built = set(re.findall(r"eplog_tests\(([\w/]+)", lists))
    found = []
    for path in sources("tests", kinds=(".cc",)):
        folder = path.parent.relative_to(TOP / "tests").as_posix()
        if path.name.endswith("_test.cc") and folder not in built and path.name not in lists:
            found.append(f"{shown(path)} belongs to no eplog_tests(...)")
    for path in sources("tests", kinds=(".sh", ".py")):
        if path.stem.endswith("_test") and path.name not in lists:
            found.append(f"{shown(path)} is in no CMakeLists.txt")
    return found


def timed_assertions():
    found = []
    for path in sources("tests", kinds=(".cc", ".h")):
        text = path.read_text()
        if CLOCK.search(text):
            found += [f"{shown(path)}:{number} compares a time" for number, line in enumerate(text.splitlines(), 1)
                      if COMPARED.search(line)]
    return found


def too_long():
    return [f"{shown(path)} has {lines} lines, of at most {LONGEST_FILE}" for path in sources("src", "include")
            if (lines := len(path.read_text().splitlines())) > LONGEST_FILE]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--most", type=int, default=30, help="sources that clang-tidy looks at, at ten seconds each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    wanted = parser.parse_args()
    found = unformatted(wanted.jobs) + rooms_without_tests() + unregistered_tests() + timed_assertions() + too_long()
    found += untidy(wanted.commits, wanted.most, wanted.jobs)
    print("\n".join(found) or "lint: nothing found")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
