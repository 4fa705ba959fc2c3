#!/usr/bin/env bash
# From nothing to an embedded model: make_model.sh dense|looped OUT. Extra arguments go to train.py.
set -euo pipefail
usage() { echo "make_model.sh dense|looped OUT [ARGUMENTS OF train.py]" >&2; exit 2; }
[[ $# -ge 2 ]] || usage
model=$1
out=$(realpath -m "$2")
shift 2
case $model in
  dense) mix=plain ;;
  looped) mix=chain ;;
  *) usage ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p "$out"
if [[ ! -f $out/tokenizer.json ]]; then # keep a tokenizer that is there: new weights then fit the old one
  python3 make_tokenizer.py "$out"
fi
python3 generate.py --tokenizer "$out" --out "$out/data" --mix "$mix" --workers "${WORKERS:-14}" --rows "${ROWS:-18000}" \
  --heldout "$out/heldout.jsonl"
python3 train.py --model "$model" --data "$out/data" --out "$out" "$@"
(cd "$out" && sha256sum model.safetensors > SHA256SUMS) # what loading holds the weights to
