#!/usr/bin/env python3
"""burst.py TESSERA BUILD_FOLDER: a burst of requests is answered from what was claimed at load, and the command fails
when a plugin takes memory later."""
import json
import pathlib
import subprocess
import sys
import tempfile

tessera, build = sys.argv[1], pathlib.Path(sys.argv[2])
SMALL = ["bench", "loops", "--burst", "6x40", "--layers", "1", "--heads", "1", "--vocab", "512", "--rounds", "2"]
ANSWER = 16


def run(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "burst.json"
        result = subprocess.run([tessera, *SMALL, "--json", str(file), *arguments], capture_output=True, text=True,
                                timeout=600)
        return result, json.loads(file.read_text()) if file.exists() else None


def check_rows():
    result, report = run()
    assert result.returncode == 0, result.stderr
    rows = report["rows"]
    assert [(row["retention"], row["mode"]) for row in rows] == [
        (retention, mode + rounds) for retention, mode in ((None, "dense"), (1, "sparse"), (0.1, "sparse"))
        for rounds in ("", ", speculative", ", in flight")], rows
    for row in rows:
        assert row["requests"] == 6 and row["tokens"] == 2 * 6 * ANSWER and row["unfinished"] == 0, row
        waits = row["first_token_milliseconds"]
        assert 0 < waits["p50"] <= waits["p95"] <= waits["most"] <= row["seconds"] * 1e3, row
        assert row["pages"]["left"] == row["references"]["left"] == row["other_answers"] == 0, row
        assert row["memory_bytes"]["loaded"] >= row["memory_bytes"]["kv"] > 0, row
        flying = "in flight" in row["mode"]
        assert (row["device_rounds"] > 0) == flying, row
        rows_each = 8 if flying else 4 if "speculative" in row["mode"] else 1
        slots = 6 * rows_each if row["retention"] == 0.1 else 0  # keeping everything is dense decoding
        assert row["references"]["slots"] == slots, row
        assert row["references"]["high_water"] > 0 or slots == 0, row
        lists = row["list_pages"]
        assert lists["left"] == 0 and (lists["total"] >= lists["high_water"] > 0 or slots == 0), row


def check_failures():
    growing = ["--set", "attention.name=grows_in_run", "--set", f"plugins.directories=[{build}/bad_plugins]",
               "--burst-retention", "1"]
    result, report = run(*growing)
    assert result.returncode == 1, result
    assert report["rows"][0]["memory_bytes"]["grown"] > 16 << 20, report["rows"][0]
    words = "burst of 6 requests of 40 tokens, dense: memory grew by"
    assert words in result.stderr and result.stderr.count("\n") == 1, result.stderr
    result, report = run("--burst", "6y40")
    assert result.returncode == 1 and "'6y40' is no shape" in result.stderr and report is None, result


check_rows()
check_failures()
print("bursts are answered from what was claimed at load, and a plugin that takes more later is named")
