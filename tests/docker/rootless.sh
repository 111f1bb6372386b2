#!/usr/bin/env bash
# Makes a Docker engine of an unprivileged user ready, beside the one of ready.sh, and ends it again.
#
#   tests/docker/rootless.sh [STATE_DIR]          prints what tests want to have in their environment
#   tests/docker/rootless.sh stop [STATE_DIR]     ends what the first form started; the image and the user stay
#
# As root, for a user that it makes. The image FOLDSPACE_IMAGE is copied from the engine at DOCKER_HOST, which is made
# ready first. An engine that runs already is used by whoever comes next, and ends with the last of its users: each is
# a process, ENGINE_USER or else the parent.
set -euo pipefail

mode=start
if [ "${1:-}" = stop ]; then mode=stop; shift; fi
account=foldspace-docker
state=${1:-/var/lib/foldspace-docker}
user=${ENGINE_USER:-$PPID}
source=${DOCKER_HOST:-} image=${FOLDSPACE_IMAGE:-}
unset DOCKER_HOST DOCKER_CONTEXT DOCKER_TLS_VERIFY
export DEBIAN_FRONTEND=noninteractive

say() { printf 'rootless docker engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make one for another user; set FOLDSPACE_ROOTLESS_DOCKER_HOST to use your own"
mkdir -p "$state"/{users,client}
state=$(cd "$state" && pwd -P)
socket=$state/xdg/docker.sock
[ ${#socket} -lt 100 ] || fail "the path of $state is too long for a socket in it"

here=$(dirname "$0")
# shellcheck source=tests/podman/users.sh
. "$here/../podman/users.sh"
lock_state
# shellcheck source=tests/podman/apt.sh
. "$here/../podman/apt.sh"

# Debian's, whatever else is in the path.
docker_at() { HOME=$state/client /usr/bin/docker --host "$@" 9>&-; }
engine() { docker_at "unix://$socket" "$@"; }

configure() {
    if ! command -v rootlesskit >/dev/null; then
        apt_get -y -o Dpkg::Use-Pty=0 install --no-install-recommends rootlesskit uidmap >"$state/install.log" \
            || fail "rootlesskit could not be installed: $(tail -n 3 "$state/install.log")"
    fi
    make_account
    mkdir -p "$state"/{data,home}
    mkdir -p -m 700 "$state/xdg"
    chmod 755 "$state"
    chown "$account:" "$state"/{data,home,xdg}
}

start_service() {
    rm -rf "$socket" "$state/xdg/docker.pid" "$state/xdg/kit"
    setsid setpriv --reuid "$account" --regid "$account" --clear-groups --inh-caps=-all env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$state/home" \
        XDG_RUNTIME_DIR="$state/xdg" rootlesskit --net=host --copy-up=/etc --copy-up=/run --propagation=rslave \
        --state-dir="$state/xdg/kit" sh -c 'rm -f /run/docker /run/containerd; exec dockerd "$@"' service \
        --rootless --host "unix://$socket" --data-root "$state/data" --exec-root "$state/xdg/exec" \
        --pidfile "$state/xdg/docker.pid" --iptables=false --ip6tables=false --bridge=none \
        </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await engine version
}

copy_image() {
    { [ -n "$source" ] && [ -n "$image" ]; } || fail "DOCKER_HOST and FOLDSPACE_IMAGE say where the image is; ready.sh prints them"
    say "copying the image"
    docker_at "$source" save "$image" | engine load --quiet >/dev/null || fail "the image could not be copied"
}

stop() {
    runs || return 0
    local containers
    containers=$(engine ps --all --quiet)
    # shellcheck disable=SC2086
    [ -z "$containers" ] || engine rm --force --volumes $containers >/dev/null 2>&1 || say "containers could not be removed"
    end_service
}

if [ "$mode" = stop ]; then
    rm -f "$state/users/$user"
    stop_unless_used
    exit
fi

configure
begin
if ! engine image inspect "$image" >/dev/null 2>&1; then copy_image; fi
engine run --rm --network none --user 0:0 "$image" python3 -c '' >&2 || fail "a container can't be run on this machine"
enter
printf 'export FOLDSPACE_ROOTLESS_DOCKER_HOST=%q\n' "unix://$socket"
