#!/usr/bin/env bash
# From nothing to models/tessera-dense: make_dense.sh OUT. Extra arguments go to train.py.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "make_dense.sh OUT [ARGUMENTS OF train.py]" >&2; exit 2; }
out=$(realpath -m "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p "$out"
if [[ ! -f $out/tokenizer.json ]]; then # keep a tokenizer that is there: new weights then fit the old one
  python3 make_tokenizer.py "$out"
fi
python3 generate.py --tokenizer "$out" --out "$out/data" --workers "${WORKERS:-14}" --rows "${ROWS:-18000}" \
  --heldout "$out/heldout.jsonl"
python3 train.py --data "$out/data" --out "$out" "$@"
