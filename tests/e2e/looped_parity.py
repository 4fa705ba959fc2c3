#!/usr/bin/env python3
"""Logits of every loop of the embedded looped model against PyTorch (tests/golden, made by tools/golden/looped_golden.py)."""
import json
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

TOLERANCE = 1e-4  # relative to the largest logit
golden = Path("tests/golden")
facts = json.loads((golden / "tessera-looped.json").read_text())
wanted = array("f", (golden / "tessera-looped.logits.f32").read_bytes())
vocab, picked, tokens = facts["vocab"], facts["positions"], facts["tokens"]
size = len(picked) * vocab
assert len(wanted) == facts["loops"] * size
exits = array("f", (golden / "tessera-looped.exits.f32").read_bytes())
worst = worst_exit = 0.0
previous = None
for loop in range(facts["loops"]):
    with tempfile.NamedTemporaryFile() as raw, tempfile.NamedTemporaryFile() as gates:
        subprocess.run([sys.argv[1], "logits", ",".join(map(str, tokens)), "--model", "models/tessera-looped", "--max-loops",
                        str(loop + 1), "--raw", raw.name, "--raw-exits", gates.name, "--json"], check=True,
                       stdout=subprocess.DEVNULL)
        found = array("f", Path(raw.name).read_bytes())
        found_exits = array("f", Path(gates.name).read_bytes())
    found = [found[position * vocab + i] for position in picked for i in range(vocab)]
    part = wanted[loop * size:(loop + 1) * size]
    largest = max(map(abs, part))
    worst = max(worst, max(abs(a - b) for a, b in zip(found, part)) / largest)
    worst_exit = max(worst_exit, max(abs(a - b) for a, b in
                                     zip(found_exits, exits[loop * len(tokens):(loop + 1) * len(tokens)])))
    if previous is not None:
        assert max(abs(a - b) for a, b in zip(found, previous)) / largest > TOLERANCE, "two loops look equal"
    previous = found
print(f"{len(wanted)} logits of {facts['loops']} loops, largest difference {worst:.2e} of the largest logit; "
      f"{len(exits)} exit probabilities, {worst_exit:.2e}; tolerance {TOLERANCE}")
sys.exit(worst > TOLERANCE or worst_exit > TOLERANCE)
