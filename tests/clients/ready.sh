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

has_python() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

install_python() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        || fail "Python 3.11 or later with venv and pip is missing, and only root on Debian can install it here"
    say "installing python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    apt_get update >&2 && apt_get -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
        python3 python3-venv >"$state/install.log" \
        || fail "python3-venv could not be installed: $(tail -n 3 "$state/install.log" 2>/dev/null)"
    has_python || fail "this Debian's Python is older than 3.11, which the clients need"
}

# At most so long, since a registry that does not answer would hold up everything.
get() { timeout 600 "$@" >"$state/install.log" 2>&1 || fail "$1 failed: $(tail -n 5 "$state/install.log")"; }

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
has_python || install_python
# Of everything that is installed, so that another branch's clients are others.
made=$state/$(cat "$0" "$here"/{requirements.txt,package-lock.json,.npmrc} <(python3 -VV) | sha256sum | cut -c1-12)
[ -e "$made/whole" ] || install_clients
touch "$made/whole"
# What nobody has used for a week goes.
find "$state" -mindepth 2 -maxdepth 2 -name whole -mtime +7 -printf '%h\0' | xargs -0r rm -rf
echo "$made"
