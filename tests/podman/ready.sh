#!/usr/bin/env bash
# Makes a private Podman engine ready for the tests of containers, and ends it again.
#
#   tests/podman/ready.sh [STATE_DIR]        prints what tests want to have in their environment
#   tests/podman/ready.sh stop [STATE_DIR]   ends what the first form started; the image stays
#
# From a bare Debian 12, as root. Nothing of the machine changes but that podman and what it needs are
# installed: containers, images and settings are in STATE_DIR. An engine that runs already is used by
# whoever comes next, and ends with the last of its users: each is a process, ENGINE_USER or else the parent.
set -euo pipefail

# With one of these set Podman would be the client of another engine.
unset CONTAINER_HOST CONTAINER_CONNECTION CONTAINER_SSHKEY

mode=start
if [ "${1:-}" = stop ]; then mode=stop; shift; fi
state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/podman}
user=${ENGINE_USER:-$PPID}

say() { printf 'engine: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can make a private one; set CONTAINER_HOST and FOLDSPACE_IMAGE to use your own"
mkdir -p "$state"
state=$(cd "$state" && pwd -P)
socket=$state/podman.sock
small=$state/small
[ ${#socket} -lt 100 ] || fail "the path of $state is too long for a socket in it"
# Of this file, so that another recipe makes another image.
image=localhost/foldspace-tests:$(sha256sum "$0" | cut -c1-12)
# What commands of the tests use: Python with virtual environments, git, a C compiler, the usual programs.
packages="python3 python3-venv git gcc libc6-dev make bash dash coreutils grep sed findutils tar gzip diffutils mawk
    procps util-linux debianutils libc-bin tmux"

export CONTAINERS_CONF=$state/containers.conf CONTAINERS_STORAGE_CONF=$state/storage.conf TMPDIR=$state/tmp
export PODMAN_IGNORE_CGROUPSV1_WARNING=1 DEBIAN_FRONTEND=noninteractive

# shellcheck source=tests/podman/users.sh
. "$(dirname "$0")/users.sh"
lock_state
# shellcheck source=tests/podman/conf.sh
. "$(dirname "$0")/conf.sh"
# shellcheck source=tests/podman/apt.sh
. "$(dirname "$0")/apt.sh"

# All commands of one store have to see the same mounts as its service.
podman_there() { nsenter --target "$(cat "$state/pid")" --mount -- podman "$@" 9>&-; }

updated=
update() {
    [ -n "$updated" ] && return
    command -v apt-get >/dev/null || fail "it is made from Debian's packages, and there is no apt-get"
    say "reading the lists of packages"
    apt_get update >&2 || fail "apt-get update failed"
    updated=1
}

# Podman, and what the tests run on the host: each program with its package.
install_programs() {
    local pair packages=
    for pair in podman:podman crun:crun conmon:conmon newuidmap:uidmap python3:python3 git:git make:make; do
        command -v "${pair%%:*}" >/dev/null || packages="$packages ${pair#*:}"
    done
    [ -z "$packages" ] && return
    update
    say "installing$packages"
    # Without a network for containers nothing of what podman recommends is needed.
    # shellcheck disable=SC2086
    apt_get -y -o Dpkg::Use-Pty=0 -o DPkg::Options::=--force-unsafe-io \
        install --no-install-recommends $packages >"$state/install.log" \
        || fail "$packages could not be installed: $(tail -n 3 "$state/install.log")"
}

configure() {
    mkdir -p "$state"/{store,run,engine,volumes,networks,tmp,users}
    containers_conf 'pids_limit = 512' >"$CONTAINERS_CONF"
    cat >"$CONTAINERS_STORAGE_CONF" <<END
[storage]
driver = "overlay"
graphroot = "$state/store"
runroot = "$state/run"
END
}

start_service() {
    rm -f "$socket"
    # For tests that fill a disk: the engine sees it, too, for it is mounted before.
    mountpoint -q "$small" || { mkdir -p "$small" && mount -t tmpfs -o size=8m,mode=755 tmpfs "$small"; }
    # crun takes no cgroup tree in which version 2 stands beside version 1 and has controllers: it gets to see none.
    setsid unshare --mount --propagation private sh -c '
        mixed=/sys/fs/cgroup/unified
        if [ -d $mixed ]; then umount $mixed 2>/dev/null || mount -t tmpfs none $mixed; fi
        # Where a container has run out of memory, conmon leaves a file in the directory that it was started in.
        cd "$2"
        exec podman system service --time=0 "unix://$1"' service "$socket" "$state" \
        </dev/null >"$state/service.log" 2>&1 9>&- &
    echo $! >"$state/pid"
    await [ -S "$socket" ]
}

make_image() {
    local root=$state/build/root archives=$state/build/archives archive directory other
    update
    rm -rf "$state/build"
    mkdir -p "$archives/partial" "$root"/{usr/{bin,sbin,lib,lib64},etc,proc,sys,dev,run,root,var/tmp,tmp,workspace}
    for directory in bin sbin lib lib64; do ln -s "usr/$directory" "$root/$directory"; done
    say "getting the packages of the image"
    # With no package said to be installed, all that these depend on come, too.
    : >"$state/build/status"
    # shellcheck disable=SC2086
    apt-get -qq -y --download-only --no-install-recommends -o Debug::NoLocking=1 -o APT::Sandbox::User=root \
        -o Dir::State::status="$state/build/status" -o Dir::Cache::archives="$archives" \
        install $packages >"$state/image.log" 2>&1 9>&- || fail "packages are missing: $(tail -n 3 "$state/image.log")"
    say "unpacking $(find "$archives" -name '*.deb' | wc -l) packages"
    for archive in "$archives"/*.deb; do
        dpkg-deb --fsys-tarfile "$archive" | tar -C "$root" -x --keep-directory-symlink --no-same-owner \
            --exclude=./usr/share/{doc,man,locale,info,lintian,i18n}
    done
    # What the packages' own scripts would have done, as far as it matters here.
    ln -sf dash "$root/usr/bin/sh"
    ln -sf mawk "$root/usr/bin/awk"
    ln -sf gcc "$root/usr/bin/cc"
    ln -sf which.debianutils "$root/usr/bin/which"
    printf '%s\n' root:x:0:0:root:/root:/bin/sh nobody:x:65534:65534:nobody:/workspace:/bin/sh >"$root/etc/passwd"
    printf '%s\n' root:x:0: nogroup:x:65534: >"$root/etc/group"
    chown 65534:65534 "$root/workspace"
    chmod 1777 "$root/tmp" "$root/var/tmp"
    ldconfig -r "$root"
    # The system is read-only in a container: what Python does not find compiled it would compile each time.
    chroot "$root" python3 -m compileall -q -x '/(test|lib2to3)/' /usr/lib/python3.11 >"$state/image.log" 9>&- \
        || say "not all of Python could be compiled beforehand"
    say "importing the image, $(du -sm "$root" | cut -f1) MB"
    tar -C "$root" -c . | podman_there import --quiet --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' \
        --change 'WORKDIR /workspace' - "$image" >/dev/null || fail "the image could not be imported"
    rm -rf "$state/build"
    # Whoever uses the engine meanwhile may need another one, also while no container has it.
    [ "$(count_users)" = 0 ] || return 0
    for other in $(podman_there images --format '{{.Repository}}:{{.Tag}}'); do
        [ "$other" = "$image" ] || podman_there rmi "$other" >/dev/null 2>&1 || true
    done
}

stop() {
    runs || return 0
    podman_there rm --all --force --time 0 >/dev/null 2>&1 || say "containers could not be removed"
    end_service
    umount -l "$small" 2>/dev/null || true
}

if [ "$mode" = stop ]; then
    rm -f "$state/users/$user"
    stop_unless_used
    exit
fi

install_programs
configure
begin
if ! podman_there image exists "$image"; then make_image; fi
podman_there run --rm --user 65534:65534 "$image" python3 -c '' >&2 || fail "a container can't be run on this machine"
enter
printf 'export CONTAINER_HOST=%q FOLDSPACE_IMAGE=%q FOLDSPACE_SMALL_DISK=%q\n' "unix://$socket" "$image" "$small"
