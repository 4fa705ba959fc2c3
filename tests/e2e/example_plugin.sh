#!/usr/bin/env bash
# example_plugin.sh BUILD SOURCE: installs the build, makes examples/plugin of the installed package as a stranger would,
# holds it to its claims, and serves with it.
set -euo pipefail
build=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
plugin=$scratch/plugin/build/plugins/attention/my_attention.cpu.so
model=$source/models/tessera-dense

quiet() {  # shows what a command said only when it failed
  "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
}
logits() { "$prefix/bin/tessera" logits 1,872,3 --model "$model" "$@"; }

quiet cmake --install "$build" --prefix "$prefix"
cp -r "$source/examples/plugin" "$scratch/plugin"
quiet cmake -S "$scratch/plugin" -B "$scratch/plugin/build" -DCMAKE_PREFIX_PATH="$prefix"
quiet cmake --build "$scratch/plugin/build"

cd "$scratch"  # nothing of the source tree is found by accident
"$prefix/bin/tessera" plugins list
"$prefix/bin/tessera" plugins check "$plugin"
"$prefix/bin/tessera" run "Once upon a time" --model "$model" --set attention.path="$plugin" --max-tokens 4
[[ "$(logits --set attention.path="$plugin")" == "$(logits --set attention.name=attention_reference)" ]] ||
  { echo "my_attention and attention_reference give different logits"; exit 1; }
echo "the example plugin builds against the installed package, passes, and serves the reference's bits"
