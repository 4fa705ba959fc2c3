#!/usr/bin/env python3
"""What plugins are compiled against changes only together with its version.

A plugin built from older headers would call the wrong entry of a virtual table, or read a field at the wrong place. So the
declarations of the interface headers (without comments and spacing) are hashed and the hash is kept in core/sdk/abi.lock beside
the version it belongs to. After a change: raise TESSERA_SDK_MAJOR (or the minor, where old plugins still work) in
core/sdk/include/tessera/sdk/abi.h, then run `tools/check_abi.py --write`. --self-test proves that the check can fail."""
import hashlib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "core/sdk/include/tessera/sdk"
LOCK = ROOT / "core/sdk/abi.lock"
INTERFACES = ("abi", "attention", "backend", "batch", "device", "frontend", "host", "http", "kv", "protocol", "rounds", "sparse_decode", "status", "tensor")


def declarations(text):
    """The code alone: no comments, no bodies of one-line functions' spacing, no include or version lines."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"#(include|pragma|define TESSERA_SDK_M)[^\n]*", "", text)
    return re.sub(r"\s+", " ", text)


def version(abi):
    numbers = re.findall(r"#define TESSERA_SDK_(?:MAJOR|MINOR) (\d+)", abi)
    return ".".join(numbers)


def state(headers):
    """'major.minor hash' of a folder of headers."""
    digest = hashlib.sha256()
    for name in INTERFACES:
        path = headers / f"{name}.h"
        if path.exists():
            digest.update(f"{name}\n{declarations(path.read_text())}\n".encode())
    return f"{version((headers / 'abi.h').read_text())} {digest.hexdigest()}"


def verdict(locked, found):
    """None, or what is wrong."""
    if locked == found:
        return None
    if locked.split()[0] == found.split()[0]:
        return f"the interface headers changed but the SDK is still version {found.split()[0]}; raise it in abi.h, then run tools/check_abi.py --write"
    return f"core/sdk/abi.lock is of version {locked.split()[0]}, the SDK of {found.split()[0]}; run tools/check_abi.py --write"


def self_test():
    assert declarations("int a;  // one\n") == declarations("int a;\n"), "a comment counts"
    assert declarations("int a;") != declarations("int b;"), "a change does not count"
    assert verdict("1.0 aa", "1.0 bb") and verdict("1.0 aa", "2.0 bb") and not verdict("1.0 aa", "1.0 aa")


def main():
    if "--self-test" in sys.argv:
        self_test()
    found = state(HEADERS)
    if "--write" in sys.argv:
        LOCK.write_text(found + "\n")
        return 0
    wrong = verdict(LOCK.read_text().strip(), found)
    if wrong:
        print(wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
