#!/usr/bin/env python3
"""Every C++ and CUDA source is formatted as .clang-format says. Exits 1 and lists the files that are not; `./dev fmt` fixes them.

Needs clang-format 14, the version of Debian 12: another one formats differently. --self-test proves that the check can fail."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

TOOL = "clang-format-14"
FOLDERS = ("core", "plugins", "tests", "examples")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def unformatted(files):
    """The files that the tool would change."""
    command = [TOOL, "--dry-run", "-Werror", *map(str, files)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return []
    return sorted({line.split(":")[0] for line in result.stderr.splitlines() if "error:" in line})


def sources(root):
    return sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in SUFFIXES)


def self_test(style):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(style, folder)
        good, bad = pathlib.Path(folder, "good.cpp"), pathlib.Path(folder, "bad.cpp")
        good.write_text("int one() { return 1; }\n")
        bad.write_text("int   one( ){return 1;}\n")
        assert unformatted([good, bad]) == [str(bad)], "the check cannot fail"


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if shutil.which(TOOL) is None:
        print(f"skipped: {TOOL} is not installed (./dev setup installs it)")
        return 0
    self_test(root / ".clang-format")
    if "--self-test" in sys.argv:
        return 0
    files = sources(root)
    wrong = unformatted(files)
    for path in wrong:
        print(f"{pathlib.Path(path).relative_to(root)}: not formatted; run ./dev fmt")
    print(f"{len(files)} files, {len(wrong)} not formatted")
    return 1 if wrong else 0


sys.exit(main())
