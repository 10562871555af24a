#!/usr/bin/env python3
"""Each room and wing of src/CMakeLists.txt has a README.md that says what it sees, as the build has it, and names the
folder of its tests, which is there. A wing's tests are in a folder of its own or in its room's.

  rooms_test.py TOP
"""
import re
import sys
from pathlib import Path

ROOM = re.compile(r"^eplog_room\(([\w/]+)([^)]*)\)", re.M)
KEYWORDS = {"JSON", "DEPS", "LIBS", "HIDDEN"}
SEES = re.compile(r"^Sees ((?:`[\w/]+`(?:, )?)+)\. Tests: `(tests/[\w/]+)`\.$", re.M)


def declared(text):
    """Rooms and the neighbours of each, as the build knows them."""
    for folder, words in ROOM.findall(text):
        kind, neighbours = "", []
        for word in words.split():
            if word in KEYWORDS:
                kind = word
            elif kind == "DEPS":
                neighbours.append(word)
        yield folder, neighbours


def wrong_with(top, folder, neighbours):
    readme = top / "src" / folder / "README.md"
    if not readme.is_file():
        yield "it has no README.md: what is it for?"
        return
    text = readme.read_text()
    if not text.startswith(f"# {folder}\n"):
        yield f"its README.md does not begin with '# {folder}'"
    said = SEES.search(text)
    if not said:
        yield "its README.md has no line 'Sees `...`. Tests: `tests/...`.'"
        return
    seen = re.findall(r"`([\w/]+)`", said.group(1))
    if seen != neighbours:
        yield f"its README.md says that it sees {', '.join(seen)}; the build says {', '.join(neighbours)}"
    room = folder.split("/")[0]
    own = (top / "tests" / folder).is_dir()
    if said.group(2) != (f"tests/{folder}" if own else f"tests/{room}"):
        yield f"its README.md names the tests of another: {said.group(2)}"
    if not any((top / said.group(2)).glob("*_test.cc")):
        yield f"there is no test in {said.group(2)}"


def main():
    top = Path(sys.argv[1])
    rooms = list(declared((top / "src" / "CMakeLists.txt").read_text()))
    wrong = [f"src/{folder}: {what}" for folder, neighbours in rooms for what in wrong_with(top, folder, neighbours)]
    known = {folder for folder, _ in rooms}
    for folder in sorted(p.parent for p in (top / "src").rglob("*.cc")):
        if str(folder.relative_to(top / "src")) not in known:
            wrong.append(f"{folder.relative_to(top)}: no room of src/CMakeLists.txt")
    if len(rooms) < 20:
        wrong.append(f"src/CMakeLists.txt has {len(rooms)} rooms: is it still read?")
    print("\n".join(dict.fromkeys(wrong)) or f"{len(rooms)} rooms: each says what it is for, what it sees, where its tests are")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
