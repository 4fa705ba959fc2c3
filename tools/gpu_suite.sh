#!/usr/bin/env bash
# The GPU evidence: checks, sanitizers and benchmarks on one machine with a GPU, in a few minutes.
#
#   tools/gpu_suite.sh TESSERA OUT [STEP...]    TESSERA: the command (a build's or a bundle's); OUT: a folder for results
#
# Steps: check, models, looped, sanitize, bench; all of them when none is named. Every step writes OUT/<name>.json or .txt and
# ends with a line "ok" or "FAILED"; the exit status is the number of failed commands. COMMIT names the sources.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tessera=$1 out=$2
shift 2
steps=("$@")
((${#steps[@]} > 0)) || steps=(check models looped sanitize bench)
mkdir -p "$out"
failed=0

run() { # run NAME COMMAND...: output to OUT/NAME.txt
  local name=$1 start=$SECONDS
  shift
  if "$@" >"$out/$name.txt" 2>&1; then
    echo "ok      $name ($((SECONDS - start)) s): $(tail -n 1 "$out/$name.txt" | cut -c1-200)"
  else
    echo "FAILED  $name ($((SECONDS - start)) s): $(tail -n 3 "$out/$name.txt" | cut -c1-400)"
    failed=$((failed + 1))
  fi
}

facts() {
  local gpu driver
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
  printf '{ "date": "%s", "gpu": "%s", "driver": "%s", "commit": "%s" }\n' "$(date -u +%F)" "$gpu" "$driver" \
    "${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}" >"$out/machine.json"
  cat "$out/machine.json"
}

same_logits() { # the CPU's logits of some tokens out of the GPU, bit for bit
  local tokens=1 i device
  for ((i = 2; i < 300; ++i)); do tokens+=",$((i * 37 % 2000))"; done
  for device in cpu cuda; do
    "$tessera" logits --device "$device" --raw "$out/$device.f32" "$tokens" >/dev/null || return 1
    sha256sum <"$out/$device.f32"
  done
  cmp "$out/cpu.f32" "$out/cuda.f32" || return 1
  echo "$(stat -c %s "$out/cpu.f32") bytes of logits are equal"
  rm "$out/cpu.f32" "$out/cuda.f32"
}

facts
for step in "${steps[@]}"; do
  case $step in
    check)
      run check_attention "$tessera" check attention --device cuda --fuzz 128 --seed 20260908 \
        --cross-device tests/golden/attention_cpu.json --json "$out/check_attention.json"
      ;;
    models)
      run logits same_logits
      run check_all "$tessera" check all --device cuda
      ;;
    looped)
      sparse=(--set sparse_decode.name=loop_reference --set sparse_decode.options.retention=0.1)
      pages=(--set sparse_decode.name=page_topk --set sparse_decode.options.budget=64)
      run looped_check_all "$tessera" check all --device cuda --model models/tessera-looped
      run looped_check_all_0.1 "$tessera" check all --device cuda --model models/tessera-looped "${sparse[@]}"
      run check_page_topk "$tessera" check all --device cuda "${pages[@]}"
      run bench_sparse "$tessera" bench sparse --device cuda "${sparse[@]}" --json "$out/bench_sparse.json"
      run bench_loops "$tessera" bench loops --device cuda "${sparse[@]}" --json "$out/bench_loops.json"
      run burst "$tessera" bench loops --device cuda --burst 64x256 --rounds 1 --json "$out/burst.json"
      ;;
    sanitize)
      # Larger cases take tools like these minutes each.
      for suite in sparse speculative graphs; do
        run "memcheck_$suite" compute-sanitizer --tool memcheck --error-exitcode 9 "$tessera" check "$suite" --device cuda \
          --model models/tessera-looped --set sparse_decode.name=loop_reference --set sparse_decode.options.retention=0.1
      done
      for tool in memcheck racecheck initcheck synccheck; do
        run "$tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$tessera" check attention --device cuda \
          --fuzz 0 --most-pairs 1000 --variant auto,exact-q4-k64,exact-q2-k32-hybrid-cache,q2-k32
      done
      ;;
    bench)
      run bench_attention "$tessera" bench attention --device cuda --json "$out/bench_attention.json" \
        --html "$out/bench_attention.html"
      for weights in f32 bf16; do
        run "bench_linear_$weights" "$tessera" bench linear --device cuda --weights "$weights"
        run "bench_decode_$weights" "$tessera" bench decode --device cuda --weights "$weights"
        run "bench_prefill_$weights" "$tessera" bench prefill --device cuda --weights "$weights"
      done
      ;;
    *)
      echo "unknown step '$step'; wanted check, models, looped, sanitize or bench" >&2
      exit 2
      ;;
  esac
done
echo "$failed commands failed"
exit "$failed"
