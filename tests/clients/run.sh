#!/usr/bin/env bash
# run.sh TESSERA SOURCES WORK: starts the server on a free port, installs the pinned client and runs its tests.
set -euo pipefail
tessera=$1 sources=$2 work=$3
mkdir -p "$work"
for file in package.json package-lock.json openai.test.mjs; do
  cmp -s "$sources/$file" "$work/$file" || { cp "$sources/$file" "$work/$file"; [ "$file" = package-lock.json ] && rm -rf "$work/node_modules"; } || true
done
[ -d "$work/node_modules" ] || (cd "$work" && npm ci --no-audit --no-fund)

# Bound and released: the kernel does not hand the same port out again soon.
port=$(node -e 'const s=require("net").createServer().listen(0,"127.0.0.1",()=>{console.log(s.address().port);s.close()})')
"$tessera" serve --port "$port" > "$work/server.log" 2>&1 &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}
trap stop EXIT

for _ in $(seq 600); do
  if ! kill -0 "$server" 2>/dev/null; then
    echo "the server ended before it was ready:" && cat "$work/server.log" && exit 1
  fi
  if node -e "fetch('http://127.0.0.1:$port/health').then(r=>process.exit(r.ok?0:1),()=>process.exit(1))"; then
    ready=1 && break
  fi
  sleep 0.1
done
[ "${ready:-0}" = 1 ] || { echo "the server was not ready in time:"; cat "$work/server.log"; exit 1; }

cd "$work"
TESSERA_URL="http://127.0.0.1:$port" node --test openai.test.mjs || { cat "$work/server.log"; exit 1; }
