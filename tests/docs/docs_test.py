#!/usr/bin/env python3
"""What the documents name exists: each function of docs/walks.md in the file that is named with it, each file and folder
that any document links to or names by its path, each target of make. And docs/status.md has each field of `eplog status --json`.

  docs_test.py TOP
"""
import re
import sys
from pathlib import Path

WALK_STEP = re.compile(r"`([A-Za-z]\w*(?:::\w+)*)`[\s,]*\(?`(src/[^`]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:src|tests|scripts|docs|bench|include|traces)/[\w./-]+)`")
MAKE = re.compile(r"`make ([a-z-]+)[^`]*`")


def defines(text, name):
    """A function's definition: its name, as a member with its class or inside it, before a bracket. Or a type's."""
    return re.search(rf"\b(class|struct|enum class) {re.escape(name)}\b", text) or \
        re.search(rf"(?<![\w:]){re.escape(name)}\(", text) or \
        (re.search(rf"\b(class|struct) {name.split('::')[0]}\b", text) and
         re.search(rf"(?<![\w:.>]){re.escape(name.split('::')[-1])}\(", text))


def wrong_in(top, path, targets):
    text = path.read_text()
    for name, file in WALK_STEP.findall(text):
        source = top / file
        if not source.is_file() or not defines(source.read_text(), name):
            yield f"{name} is not in {file}"
    for target in LINK.findall(text):
        if "://" not in target and not (path.parent / target).exists():
            yield f"there is no {target}"
    for named in PATH.findall(text):
        stands_for_any = re.search(r"\b[A-Z]+\b", named)
        if not stands_for_any and not (top / named).exists():
            yield f"there is no {named}"
    for target in MAKE.findall(text):
        if target not in targets:
            yield f"make has no target {target}"


def fields_of_status(top):
    """Of what is written down as {"name", ...}, json["name"] or device["name"] there."""
    names = set()
    for file in ("src/report/status_json.cc", "include/eplog/status.h", "src/cli/status.cc"):
        names |= set(re.findall(r'(?:\{|\w\[)"(\w+)"(?:,|\] = )', (top / file).read_text()))
    return names


def main():
    top = Path(sys.argv[1])
    documents = sorted([*top.glob("*.md"), *(top / "docs").glob("*.md")])
    targets = set(re.findall(r"^([a-z-]+):", (top / "Makefile").read_text(), re.M))
    steps = len(WALK_STEP.findall((top / "docs" / "walks.md").read_text()))
    wrong = [f"{path.relative_to(top)}: {what}" for path in documents for what in wrong_in(top, path, targets)]
    status = (top / "docs" / "status.md").read_text()
    fields = fields_of_status(top)
    wrong += [f"docs/status.md: nothing about {field}" for field in sorted(fields) if f"`{field}`" not in status]
    if len(fields) < 60:
        wrong.append(f"{len(fields)} fields of the status were found: is its source still read?")
    if steps < 40:
        wrong.append(f"docs/walks.md names {steps} functions with their files: is it still read?")
    print("\n".join(wrong) or f"{len(documents)} documents, {steps} steps of walks: all that they name is there")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
