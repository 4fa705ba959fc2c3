#!/usr/bin/env python3
"""Logits, exit probabilities and hidden states of every loop of the embedded looped model against PyTorch (tests/golden,
made by tools/golden/looped_golden.py)."""
import json
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

TOLERANCE = 1e-4  # relative to the largest logit or component of a hidden state
golden = Path("tests/golden")
facts = json.loads((golden / "tessera-looped.json").read_text())
loops, picked, tokens = facts["loops"], facts["positions"], facts["tokens"]


def floats(path):
    return array("f", Path(path).read_bytes())


def run(*options):
    """`tessera logits` on the golden text; the contents of the files named by options."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: f"{folder}/{name}" for name in options if name.startswith("--raw")}
        words = [word for option in options for word in ([option, files[option]] if option in files else [option])]
        subprocess.run([sys.argv[1], "logits", ",".join(map(str, tokens)), "--model", "models/tessera-looped", "--json", *words],
                       check=True, stdout=subprocess.DEVNULL)
        return [floats(path) for path in files.values()]


def picked_rows(values, width):
    return [values[position * width + i] for position in picked for i in range(width)]


def parts(values, count=loops):
    size = len(values) // count
    return [values[i * size:(i + 1) * size] for i in range(count)]


def difference(found, wanted):
    assert len(found) == len(wanted), (len(found), len(wanted))
    return max(abs(a - b) for a, b in zip(found, wanted))


def relative(found, wanted):
    return difference(found, wanted) / max(map(abs, wanted))


def compare_answers():
    """Each loop as the last one."""
    wanted, wanted_exits = floats(golden / "tessera-looped.logits.f32"), floats(golden / "tessera-looped.exits.f32")
    assert len(wanted) == loops * len(picked) * facts["vocab"] and len(wanted_exits) == loops * len(tokens)
    worst = worst_exit = 0.0
    previous = None
    for loop, (logits, exits) in enumerate(zip(parts(wanted), parts(wanted_exits))):
        found, found_exits = run("--max-loops", str(loop + 1), "--raw", "--raw-exits")
        found = picked_rows(found, facts["vocab"])
        worst = max(worst, relative(found, logits))
        worst_exit = max(worst_exit, difference(found_exits, exits))
        if previous is not None:
            assert relative(found, previous) > TOLERANCE, "two loops look equal"
        previous = found
    print(f"{len(wanted)} logits of {loops} loops, largest difference {worst:.2e} of the largest logit; "
          f"{len(wanted_exits)} exit probabilities, {worst_exit:.2e}; tolerance {TOLERANCE}")
    return worst <= TOLERANCE and worst_exit <= TOLERANCE


def compare_states():
    """What the loops of one run leave in the state bank. The states of any other loop must fail."""
    wanted = floats(golden / "tessera-looped.hidden.f32")
    assert len(wanted) == loops * len(picked) * facts["hidden"]
    (found,) = run("--raw-states")
    assert len(found) == loops * len(tokens) * facts["hidden"]
    found = [picked_rows(part, facts["hidden"]) for part in parts(found)]
    differences = {(a, b): relative(found[a], part) for b, part in enumerate(parts(wanted)) for a in range(loops)}
    worst = max(value for (a, b), value in differences.items() if a == b)
    nearest = min(value for (a, b), value in differences.items() if a != b)
    print(f"{len(wanted)} components of hidden states, largest difference {worst:.2e} of the largest component; "
          f"states of another loop differ by {nearest:.2e} or more; tolerance {TOLERANCE}")
    assert nearest > TOLERANCE, "the states of a wrong loop would pass"
    return worst <= TOLERANCE


sys.exit(not all([compare_answers(), compare_states()]))
