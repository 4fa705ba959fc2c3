#!/usr/bin/env python3
"""Logits of the embedded model against Hugging Face transformers (tests/golden, made by tools/golden/hf_golden.py)."""
import json
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

TOLERANCE = 1e-4  # relative to the largest logit
golden = Path("tests/golden")
facts = json.loads((golden / "tessera-dense.json").read_text())
with tempfile.NamedTemporaryFile() as raw:
    tokens = ",".join(map(str, facts["tokens"]))
    subprocess.run([sys.argv[1], "logits", tokens, "--raw", raw.name, "--json"], check=True, stdout=subprocess.DEVNULL)
    found = array("f", Path(raw.name).read_bytes())
wanted = array("f", (golden / "tessera-dense.logits.f32").read_bytes())
assert len(found) == len(wanted) == len(facts["tokens"]) * facts["vocab"], (len(found), len(wanted))
worst = max(abs(a - b) for a, b in zip(found, wanted)) / max(map(abs, wanted))
shifted = max(abs(a - b) for a, b in zip(found[1:], wanted)) / max(map(abs, wanted))
assert shifted > TOLERANCE, "the comparison cannot fail: shifted logits look equal"
print(f"{len(found)} logits, largest difference {worst:.2e} of the largest logit, tolerance {TOLERANCE}")
sys.exit(worst > TOLERANCE)
