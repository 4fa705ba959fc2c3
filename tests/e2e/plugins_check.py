#!/usr/bin/env python3
"""plugins_check.py TESSERA BUILD_FOLDER [--slow]: the conformance kit passes the plugins of this tree, and fails every
one of tests/bad_plugins for the right reason."""
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

tessera, build = sys.argv[1], pathlib.Path(sys.argv[2])
SLOW = "--slow" in sys.argv  # sanitizers
HANG_SECONDS = 20 if SLOW else 5
FOLDER = build / "bad_plugins"

# plugin -> (the case that must fail, words of the reason)
BAD = {
    "not_elf": ("library-is-elf", "no ELF shared library"),
    "no_symbol": ("library-exports-one-symbol", "exports no tessera_plugin_v6"),
    "exports_more": ("library-exports-one-symbol", "besides tessera_plugin_v6"),
    "relative_path": ("library-has-no-surprises", "relative to the working directory"),
    "wrong_major": ("library-loads", "another SDK major"),
    "newer_minor": ("library-loads", "needs SDK"),
    "wrong_toolchain": ("library-loads", "__GXX_ABI_VERSION"),
    "wrong_name": ("library-loads", "calls itself 'another_name'"),
    "attention/wrong_kind": ("library-loads", "of kind protocol in a folder for kind attention"),
    "unknown_claim": ("library-loads", "capability bits 0x40000000"),
    "throws_in_create": ("lifecycle-creates", "thrown in create"),
    "hangs_in_destroy": ("lifecycle-creates", f"did not finish in {HANG_SECONDS} s while being destroyed"),
    "only_once": ("lifecycle-three-times", "only_once: is already in use"),
    "accepts_anything": ("attention-refuses-impossible-shapes", "while being bound to no KV heads"),
    "refuses_silently": ("attention-refuses-impossible-shapes", "without a sentence"),
    "refuses_its_claim": ("attention-serves-what-it-says", "not 128"),
    "fails_in_bind": ("attention-writes-its-output", "serves no shape at all"),
    "fails_in_run": ("attention-writes-its-output", "position 40 is too much"),
    "crashes_in_run": ("attention-writes-its-output", "SEGV"),
    "hangs_in_run": ("attention-writes-its-output", f"did not finish in {HANG_SECONDS} s while running attention"),
    "exits_in_run": ("attention-writes-its-output", "ended the process with status 0"),
    "leaves_gaps": ("attention-writes-its-output", "were not written"),
    "writes_past": ("attention-writes-its-output", "outside the output's rows"),
    "writes_kv": ("attention-writes-its-output", "changed keys in the KV pool"),
    "overruns_workspace": ("attention-writes-its-output", "memory behind its workspace"),
    "not_deterministic": ("attention-is-deterministic", "the same call is made again"),
    "wrong_value": ("attention-matches-reference", "off by more than 2e-05"),
    "drifts": ("attention-serves-what-it-says", "off by more than 2e-05"),
    "claims_bits": ("attention-matches-reference", "differ from the reference"),
    "peeks": ("attention-reads-only-its-past", "when NaN stood where no row may look"),
    "page_dependent": ("attention-ignores-page-ids", "other pages"),
    "batch_dependent": ("attention-is-batch-invariant", "alone: "),
    "chunk_dependent": ("attention-is-chunk-invariant", "cut 1: "),
    "wrong_scores": ("attention-emits-scores", "differ from the reference's"),
    "checks_plan": ("attention-emits-scores", "differ from the reference's"),
    "shares_shape": ("attention-instances-are-apart", "second instance served another model"),
}
GOOD = ["bad_plugins/plain", "bad_plugins/slow_to_destroy", "plugins/attention/attention_reference.cpu",
        "plugins/attention/attention_exact.cpu", "plugins/backend/cpu.cpu"]


def check(file, *arguments):
    command = [tessera, "plugins", "check", str(file), "--json", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert result.stdout, result.stderr
    report = json.loads(result.stdout)
    assert report["ok"] == (result.returncode == 0), result
    return report


def case(report, name):
    found = [one for one in report["cases"] if one["name"] == name]
    assert len(found) == 1, (name, report)
    return found[0]


def fails(file, name, words):
    limit = ["--timeout", str(HANG_SECONDS)] if "hangs" in str(file) else []
    report = check(file, "--only", name, *limit)
    found = case(report, name)
    assert not report["ok"] and found["verdict"] == "FAILED", report
    assert words in found["reason"], (words, found)
    others = [one for one in report["cases"] if one is not found and one["verdict"] == "FAILED"]
    assert not others, others


def passes(name):
    report = check(build / f"{name}.so", "--fuzz", "1", "--timeout", "1200" if SLOW else "120")
    assert report["ok"] and len(report["cases"]) >= 9, report


def main():
    with tempfile.TemporaryDirectory() as scratch:
        attention = pathlib.Path(scratch) / "attention"
        attention.mkdir()
        shutil.copy(FOLDER / "wrong_kind.so", attention)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            folder = lambda name: pathlib.Path(scratch) if "/" in name else FOLDER
            tried = [pool.submit(fails, folder(name) / f"{name}.so", *expected) for name, expected in BAD.items()]
            tried += [pool.submit(passes, name) for name in GOOD]
            for one in tried:
                one.result()
    known = {path.stem for path in FOLDER.glob("*.so")}
    # Memory taken little by little is seen by a burst (tests/e2e/burst.py), not by the kit.
    expected = {name.split("/")[-1] for name in [*BAD, *GOOD, "claims_nothing", "grows_in_run"]}
    assert known <= expected, f"no expectation for {sorted(known - expected)}"

    silent = check(FOLDER / "claims_nothing.so", "--only", "attention-is")
    found = case(silent, "attention-is-batch-invariant")
    assert silent["ok"] and found["verdict"] == "not claimed" and "promise does not hold" in found["reason"], silent

    # A crash costs its own case only: with everything asked for, every case has a verdict.
    crashing = check(FOLDER / "crashes_in_run.so")
    assert case(crashing, "lifecycle-destroys-in-time")["verdict"] == "passed", crashing
    assert case(crashing, "attention-instances-are-apart")["verdict"] == "FAILED", crashing
    print(f"{len(BAD)} bad plugins failed for the right reason, {len(GOOD)} good ones passed")


if __name__ == "__main__":
    main()
