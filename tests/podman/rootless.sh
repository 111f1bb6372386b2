#!/usr/bin/env bash
# Makes an engine of an unprivileged user ready, beside the one of ready.sh, and ends it again.
#
#   tests/podman/rootless.sh [STATE_DIR]          prints what tests want to have in their environment
#   tests/podman/rootless.sh stop [STATE_DIR]     ends what the first form started; the image and the user stay
#   tests/podman/rootless.sh remove [STATE_DIR]   the same, and removes them, too
#
# As root, for a user that it makes. The image FOLDSPACE_IMAGE is copied from the engine at CONTAINER_HOST, which
# is made ready first. An engine that runs already is used by whoever comes next, and ends with the last of its
# users: each is a process, ENGINE_USER or else the parent.
set -euo pipefail

mode=start
case "${1:-}" in stop | remove) mode=$1; shift ;; esac
account=foldspace-tests
state=${1:-/var/lib/foldspace-tests}
user=${ENGINE_USER:-$PPID}
source=${CONTAINER_HOST:-} image=${FOLDSPACE_IMAGE:-}
unset CONTAINER_HOST CONTAINER_CONNECTION CONTAINER_SSHKEY

say() { printf 'rootless engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make one for another user; set FOLDSPACE_ROOTLESS_HOST to use your own"
mkdir -p "$state"
state=$(cd "$state" && pwd -P)
socket=$state/xdg/podman.sock
[ ${#socket} -lt 100 ] || fail "the path of $state is too long for a socket in it"

# shellcheck source=tests/podman/users.sh
. "$(dirname "$0")/users.sh"
lock_state
# shellcheck source=tests/podman/conf.sh
. "$(dirname "$0")/conf.sh"

engine() { podman --url "unix://$socket" "$@" 9>&-; }

as_account() { setpriv --reuid "$account" --regid "$account" --clear-groups --inh-caps=-all "$@"; }

configure() {
    local program
    for program in podman crun newuidmap newgidmap useradd setpriv; do
        command -v "$program" >/dev/null || fail "there is no $program"
    done
    make_account
    mkdir -p "$state"/{store,run,engine,volumes,networks,tmp,home,users}
    mkdir -p -m 700 "$state/xdg"
    containers_conf >"$state/containers.conf"
    # Without root Podman takes no notice of graphroot.
    cat >"$state/storage.conf" <<END
[storage]
driver = "overlay"
rootless_storage_path = "$state/store"
runroot = "$state/run"
END
    chmod 755 "$state"
    chown "$account:" "$state"/{store,run,engine,volumes,networks,tmp,home,xdg}
    as_account test -r "$state/containers.conf" \
        || fail "$account can't reach $state: every directory above has to be open for it"
}

start_service() {
    rm -f "$socket" "$state/engine/pause.pid"
    # crun takes no cgroup tree in which version 2 stands beside version 1: it gets to see none.
    setsid unshare --mount --propagation private sh -c '
        mixed=/sys/fs/cgroup/unified
        if [ -d $mixed ]; then umount $mixed 2>/dev/null || mount -t tmpfs none $mixed; fi
        cd /
        exec setpriv --reuid "$1" --regid "$1" --clear-groups --inh-caps=-all env -i \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$2/home" TMPDIR="$2/tmp" \
            XDG_RUNTIME_DIR="$2/xdg" CONTAINERS_CONF="$2/containers.conf" \
            CONTAINERS_STORAGE_CONF="$2/storage.conf" PODMAN_IGNORE_CGROUPSV1_WARNING=1 \
            podman system service --time=0 "unix://$3"' service "$account" "$state" "$socket" \
        </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await [ -S "$socket" ]
}

copy_image() {
    local other
    { [ -n "$source" ] && [ -n "$image" ]; } || fail "CONTAINER_HOST and FOLDSPACE_IMAGE say where the image is; ready.sh prints them"
    say "copying the image"
    podman --url "$source" save "$image" 9>&- | engine load --quiet >/dev/null || fail "the image could not be copied"
    for other in $(engine images --format '{{.Repository}}:{{.Tag}}'); do
        [ "$other" = "$image" ] || engine rmi "$other" >/dev/null 2>&1 || true
    done
}

# Waits until a process has ended, whether or not its parent has noticed.
ended() { while grep -qs '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; do sleep 0.05; done; }

# Whether a process of a group still runs.
group_runs() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' \
        | awk -v group="$1" '$3 == group && $1 !~ /[ZX]/ { found = 1 } END { exit !found }'
}

stop() {
    local pid holder _
    runs || return 0
    engine rm --all --force --time 0 >/dev/null 2>&1 || say "containers could not be removed"
    pid=$(cat "$state/pid")
    # What holds the user's namespace for as long as the engine has containers, or may have.
    holder=$(cat "$state/engine/pause.pid" 2>/dev/null || true)
    # There are two: the one that was started, and the one in the user's namespace, which may outlive it.
    kill -TERM -- "-$pid"
    for _ in $(seq 200); do
        group_runs "$pid" || break
        sleep 0.05
    done
    if group_runs "$pid"; then kill -KILL -- "-$pid"; fi
    if [ -n "$holder" ] && [ "$(stat -c %U "/proc/$holder" 2>/dev/null)" = "$account" ]; then
        kill "$holder"
        ended "$holder"
    fi
    rm -f "$state/pid" "$state/engine/pause.pid" "$socket"
}

if [ "$mode" != start ]; then
    rm -f "$state/users/$user"
    [ "$(count_users)" = 0 ] || exit 0
    stop
    if [ "$mode" = remove ]; then
        if [ -e "$state/made-account" ]; then userdel "$account" 2>/dev/null || say "the user $account could not be removed"; fi
        rm -rf "$state"
    fi
    exit
fi

configure
begin
if ! engine image exists "$image"; then copy_image; fi
# The first container with these ids takes seconds: the image's files get other owners.
engine run --rm --userns keep-id:uid=65534,gid=65534 --user 65534:65534 "$image" python3 -c '' >&2 \
    || fail "a container can't be run on this machine"
enter
printf 'export FOLDSPACE_ROOTLESS_HOST=%q\n' "unix://$socket"
