#!/usr/bin/env bash
# Packs the client and the program of a platform: typescript/pack.sh PROGRAM DIR
set -euo pipefail

program=$(realpath "$1")
mkdir -p "$2"
to=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd -P)
platform=${PLATFORM:-$(node -p 'process.platform + "-" + process.arch')}
version=$(node -p "require('$here/package.json').version")

package=$(mktemp -d)
client=$(mktemp -d)
trap 'rm -rf "$package" "$client"' EXIT
install -m 755 "$program" "$package/foldspace"
# Python without a container, where it was built.
files=(foldspace)
evaluator=$(dirname "$program")/foldspace-evaluator
if [ -x "$evaluator" ]; then
    install -m 755 "$evaluator" "$package/foldspace-evaluator"
    files+=(foldspace-evaluator)
fi
[ "$platform" != "$(node -p 'process.platform + "-" + process.arch')" ] || strip "${files[@]/#/$package/}"
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
