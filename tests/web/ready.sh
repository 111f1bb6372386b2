#!/usr/bin/env bash
# Makes ready what the tests of the page need: node, playwright-core and axe-core as package-lock.json fixes them,
# and Chromium.
#
#   tests/web/ready.sh [STATE_DIR]       prints the directory of the modules and of node, and the browser, a line each
#
# As root on Debian it installs Chromium. Where node is missing or old, it takes that of tests/clients.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd -P)
state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/web}

say() { printf 'web: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# shellcheck source=tests/podman/apt.sh
. "$here/../podman/apt.sh"

find_browser() {
    local name
    for name in "${FOLDSPACE_CHROMIUM:-}" chromium chromium-browser google-chrome; do
        [ -n "$name" ] && command -v "$name" && return
    done
    return 1
}

install_browser() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        || fail "Chromium is missing, and only root on Debian can install it here; FOLDSPACE_CHROMIUM names one"
    say "installing chromium"
    export DEBIAN_FRONTEND=noninteractive
    apt_get update >&2 && apt_get -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
        chromium fonts-dejavu-core >"$state/install.log" \
        || fail "chromium could not be installed: $(tail -n 3 "$state/install.log" 2>/dev/null)"
}

find_node() {
    if command -v node >/dev/null && node -e 'process.exit(Number(parseInt(process.versions.node, 10) < 20))'; then
        dirname "$(command -v node)"
    else
        echo "$("$here/../clients/ready.sh")/venv/bin"
    fi
}

mkdir -p "$state"
state=$(cd "$state" && pwd -P)
exec 9>"$state/lock"
flock -w 900 9 || fail "another process has been preparing $state for fifteen minutes"
browser=$(find_browser) || { install_browser; browser=$(find_browser) || fail "there is still no Chromium"; }
node=$(find_node)
made=$state/$(cat "$0" "$here"/{package.json,package-lock.json,.npmrc} | sha256sum | cut -c1-12)
if [ ! -e "$made/whole" ]; then
    say "installing playwright-core and axe-core"
    rm -rf "$made"
    mkdir "$made"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$made"
    (cd "$made" && PATH=$node:$PATH timeout 600 npm ci >"$state/install.log" 2>&1) \
        || fail "npm ci failed: $(tail -n 5 "$state/install.log")"
fi
touch "$made/whole"
find "$state" -mindepth 2 -maxdepth 2 -name whole -mtime +7 -printf '%h\0' | xargs -0r rm -rf
printf '%s\n' "$made/node_modules" "$node" "$browser"
