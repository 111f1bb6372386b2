#!/usr/bin/env bash
# Makes a private Docker engine ready for the tests of containers, and ends it again.
#
#   tests/docker/ready.sh [STATE_DIR]        prints what tests want to have in their environment
#   tests/docker/ready.sh stop [STATE_DIR]   ends what the first form started; the image stays
#
# As root. The image FOLDSPACE_IMAGE is copied from the Podman engine at CONTAINER_HOST, which is made ready first.
# Nothing of the machine changes but that Debian's docker.io is installed: containers, images and settings are in
# STATE_DIR. An engine that runs already is used by whoever comes next, and ends with the last of its users: each is
# a process, ENGINE_USER or else the parent.
set -euo pipefail

mode=start
if [ "${1:-}" = stop ]; then mode=stop; shift; fi
state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/docker}
user=${ENGINE_USER:-$PPID}
source=${CONTAINER_HOST:-} image=${FOLDSPACE_IMAGE:-}
unset CONTAINER_HOST CONTAINER_CONNECTION CONTAINER_SSHKEY DOCKER_HOST DOCKER_CONTEXT DOCKER_TLS_VERIFY

say() { printf 'docker engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make a private one; set DOCKER_HOST to use your own"
mkdir -p "$state"/{users,home}
state=$(cd "$state" && pwd -P)
socket=$state/docker.sock
[ ${#socket} -lt 100 ] || fail "the path of $state is too long for a socket in it"
export DEBIAN_FRONTEND=noninteractive

here=$(dirname "$0")
# shellcheck source=tests/podman/users.sh
. "$here/../podman/users.sh"
lock_state
# shellcheck source=tests/podman/apt.sh
. "$here/../podman/apt.sh"

# Debian's, whatever else is in the path.
engine() { HOME=$state/home /usr/bin/docker --host "unix://$socket" "$@" 9>&-; }

install_docker() {
    [ -x /usr/bin/docker ] && [ -x /usr/sbin/dockerd ] && return
    command -v apt-get >/dev/null || fail "it is Debian's docker.io, and there is no apt-get"
    say "installing docker.io"
    apt_get update >&2 || fail "apt-get update failed"
    apt_get -y -o Dpkg::Use-Pty=0 -o DPkg::Options::=--force-unsafe-io install --no-install-recommends docker.io \
        >"$state/install.log" || fail "docker.io could not be installed: $(tail -n 3 "$state/install.log")"
}

start_service() {
    rm -f "$socket" "$state/docker.pid"
    # Without a network for containers the machine's firewall stays as it is.
    setsid /usr/sbin/dockerd --host "unix://$socket" --data-root "$state/data" --exec-root "$state/exec" \
        --pidfile "$state/docker.pid" --config-file "$state/daemon.json" --iptables=false --ip6tables=false \
        --bridge=none </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await engine version
}

copy_image() {
    local other
    { [ -n "$source" ] && [ -n "$image" ]; } || fail "CONTAINER_HOST and FOLDSPACE_IMAGE say where the image is; tests/podman/ready.sh prints them"
    say "copying the image"
    podman --url "$source" save "$image" 9>&- | engine load --quiet >/dev/null || fail "the image could not be copied"
    [ "$(count_users)" = 0 ] || return 0
    for other in $(engine images --format '{{.Repository}}:{{.Tag}}'); do
        [ "$other" = "$image" ] || engine rmi "$other" >/dev/null 2>&1 || true
    done
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

install_docker
[ -e "$state/daemon.json" ] || printf '{}\n' >"$state/daemon.json"
begin
if ! engine image inspect "$image" >/dev/null 2>&1; then copy_image; fi
engine run --rm --network none --user 65534:65534 "$image" python3 -c '' >&2 || fail "a container can't be run on this machine"
enter
printf 'export DOCKER_HOST=%q\n' "unix://$socket"
