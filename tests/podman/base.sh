#!/usr/bin/env bash
# Makes a file system of a small Debian with apt, for tests that build an image.
#
#   tests/podman/base.sh [STATE_DIR]     prints what tests want to have in their environment
set -euo pipefail

state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/base}
export DEBIAN_FRONTEND=noninteractive

say() { printf 'base image: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make one; set FOLDSPACE_BASE_TAR to use your own"
mkdir -p "$state"
state=$(cd "$state" && pwd -P)
# shellcheck source=tests/podman/users.sh
. "$(dirname "$0")/users.sh"
lock_state
# shellcheck source=tests/podman/apt.sh
. "$(dirname "$0")/apt.sh"

if [ ! -s "$state/base.tar" ]; then
    if ! command -v mmdebstrap >/dev/null; then
        apt_get update >&2 || fail "apt-get update failed"
        apt_get -y -o Dpkg::Use-Pty=0 install --no-install-recommends mmdebstrap >"$state/install.log" \
            || fail "mmdebstrap could not be installed: $(tail -n 3 "$state/install.log")"
    fi
    say "getting its packages"
    mmdebstrap --variant=apt --quiet bookworm "$state/new.tar" >"$state/make.log" 2>&1 9>&- \
        || fail "it could not be made: $(tail -n 3 "$state/make.log")"
    mv "$state/new.tar" "$state/base.tar"
fi
printf 'export FOLDSPACE_BASE_TAR=%q\n' "$state/base.tar"
