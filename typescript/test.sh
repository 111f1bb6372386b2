#!/usr/bin/env bash
# Tests the client against a program: typescript/test.sh PROGRAM
#
# Its types are those of docs/openapi.json, and the packed packages work in an empty folder.
set -euo pipefail

program=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd -P)
cd "$here"
if made=$(../tests/clients/ready.sh); then
    export PATH=$made/venv/bin:$PATH
else
    echo "note: no Node; the TypeScript client is not tested" >&2
    [ -z "${CI:-}" ] || exit 1
    exit 0
fi
export FOLDSPACE_BIN=$program
scratch=$(mktemp -d)
ended() {
    "$program" --data "$scratch/data" stop >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap ended EXIT

npm ci --silent
npx --no-install openapi-typescript ../docs/openapi.json --output "$scratch/api.ts" >/dev/null
cmp "$scratch/api.ts" src/api.ts || { echo "src/api.ts is not what docs/openapi.json says: npm run generate" >&2; exit 1; }
npm run --silent build
npx --no-install tsc --project test
node --test --test-timeout=120000 test/*.test.js

# As a user has it: only the packed packages, and the lines of README.md.
mkdir "$scratch/programs"
for name in foldspace foldspace-evaluator; do
    file=$(dirname "$program")/$name
    [ ! -f "$file" ] || strip -o "$scratch/programs/$name" "$file"
done
./pack.sh "$scratch/programs/foldspace" "$scratch/packed" >/dev/null
mkdir "$scratch/empty"
cd "$scratch/empty"
npm init --yes >/dev/null
npm install --silent --no-save "$scratch"/packed/*.tgz
unset FOLDSPACE_BIN
export FOLDSPACE_DATA=$scratch/data
sed -n '/^```js$/,/^```$/p' "$here/README.md" | sed '/^```$/q' | sed '/^```/d' >host.mjs
backends=host
if [ -n "${CONTAINER_HOST:-}" ] && [ -n "${FOLDSPACE_IMAGE:-}" ]; then
    backends="host podman"
    sed 's/backend: "host"/backend: "podman"/' host.mjs >podman.mjs
else
    echo "note: no CONTAINER_HOST and FOLDSPACE_IMAGE; the TypeScript client is not tested on Podman" >&2
fi
for backend in $backends; do
    node "$backend.mjs" | tee printed
    grep -q '^merged$' printed
done
npx --no-install foldspace --version
"$here/../release/try" node_modules/.bin/foldspace
echo "the packed packages work in an empty folder"
