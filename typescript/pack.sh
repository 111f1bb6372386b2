#!/usr/bin/env bash
# Packs the client and the programs of a platform: typescript/pack.sh PROGRAM DIR
#
# foldspace-evaluator goes along if it is next to PROGRAM, and so do licences. PLATFORM is linux-x64 or linux-arm64.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 PROGRAM DIR" >&2; exit 2; }

program=$(realpath "$1")
mkdir -p "$2"
to=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd -P)
platform=${PLATFORM:-$(node -p 'process.platform + "-" + process.arch')}
version=$(node -p "require('$here/package.json').version")
[ -d "$here/node_modules" ] || (cd "$here" && npm ci --silent)
(cd "$here" && npm run --silent build)

package=$(mktemp -d)
client=$(mktemp -d)
trap 'rm -rf "$package" "$client"' EXIT
files=()
for name in foldspace foldspace-evaluator LICENSES-THIRD-PARTY.txt foldspace.cdx.json; do
    file=$(dirname "$program")/$name
    [ "$name" != foldspace ] || file=$program
    [ -f "$file" ] || continue
    cp -p "$file" "$package/$name"
    files+=("$name")
done
cp "$here"/../LICENSE-* "$package"
cp "$here"/../LICENSE-* "$client"
node -e '
    const [platform, version, file, ...files] = process.argv.slice(1);
    const [os, cpu] = platform.split("-");
    const about = { name: `@foldspace/${platform}`, version, license: "MIT OR Apache-2.0", os: [os], cpu: [cpu] };
    require("fs").writeFileSync(file, JSON.stringify({ ...about, description: "The program of foldspace", files }));
' "$platform" "$version" "$package/package.json" "${files[@]}"
npm pack --silent --pack-destination "$to" "$package"
# The client names the programs here: what is not published yet could not be installed for its tests.
cp -r "$here"/{bin,dist,README.md} "$client"
node -e '
    const [version, from, to] = process.argv.slice(1);
    const { devDependencies, scripts, ...about } = JSON.parse(require("fs").readFileSync(from));
    about.optionalDependencies = { "@foldspace/linux-x64": version, "@foldspace/linux-arm64": version };
    require("fs").writeFileSync(to, JSON.stringify(about, null, 2));
' "$version" "$here/package.json" "$client/package.json"
npm pack --silent --pack-destination "$to" "$client"
