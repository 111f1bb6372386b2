# Python with venv and pip, installed where it is missing: sourced after tests/podman/apt.sh by scripts that have $state,
# say and fail.

has_python() { python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

install_python() {
    if has_python; then return; fi
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        || fail "Python 3.11 or later with venv and pip is missing, and only root on Debian can install it here"
    say "installing python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    apt_get update >&2 && apt_get -y -o Dpkg::Use-Pty=0 install --no-install-recommends \
        python3 python3-venv >"$state/install.log" \
        || fail "python3-venv could not be installed: $(tail -n 3 "$state/install.log")"
    has_python || fail "this Debian's Python is older than 3.11, which the packages need"
}

# At most so long, since a registry that does not answer would hold up everything.
get() { timeout 600 "$@" >"$state/install.log" 2>&1 || fail "$1 failed: $(tail -n 5 "$state/install.log")"; }
