#!/usr/bin/env bash
# Makes the clients ready that others wrote, in the releases that requirements.txt and package-lock.json fix.
#
#   tests/clients/ready.sh [STATE_DIR]       prints the directory that they are in
#
# As root on Debian it installs what is missing of Python. Node comes as a Python package, too: the inspector
# needs a newer one than Debian 12 has. What is there already, of the same releases, is used as it is.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/clients}

say() { printf 'clients: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# shellcheck source=tests/podman/apt.sh
. "$here/../podman/apt.sh"

# shellcheck source=tests/clients/python.sh
. "$here/python.sh"

install_clients() {
    say "installing the Python SDK, schemathesis and node"
    rm -rf "$made"
    get python3 -m venv "$made/venv"
    get "$made/venv/bin/pip" install --disable-pip-version-check --no-input --no-deps --no-compile \
        --only-binary :all: --require-hashes -r "$here/requirements.txt"
    say "installing the inspector and the conformance suite"
    mkdir "$made/npm"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$made/npm"
    (cd "$made/npm" && PATH=$made/venv/bin:$PATH get npm ci)
}

mkdir -p "$state"
state=$(cd "$state" && pwd -P)
exec 9>"$state/lock"
flock -w 900 9 || fail "another process has been preparing $state for fifteen minutes"
install_python
# Of everything that is installed, so that another branch's clients are others.
made=$state/$(cat "$0" "$here"/{requirements.txt,package-lock.json,.npmrc} <(python3 -VV) | sha256sum | cut -c1-12)
[ -e "$made/whole" ] || install_clients
touch "$made/whole"
# What nobody has used for a week goes.
find "$state" -mindepth 2 -maxdepth 2 -name whole -mtime +7 -printf '%h\0' | xargs -0r rm -rf
echo "$made"
