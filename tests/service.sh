# The beginning of a script that makes a service ready for tests, and ends it again: sourced by one beside this file's
# folder with its arguments, with $service, the service's name, and $address_file, which holds its address while it runs.

mode=start
if [ "${1:-}" = stop ]; then mode=stop; shift; fi
here=$(cd "$(dirname "$0")" && pwd -P)
state=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/foldspace-tests/$service}
user=${ENGINE_USER:-$PPID}

say() { printf '%s: %s\n' "$service" "$*" >&2; }
fail() { say "$*"; exit 1; }

mkdir -p "$state/users"
state=$(cd "$state" && pwd -P)
socket=$state/$address_file
mark=$state
# shellcheck source=tests/podman/users.sh
. "$here/../podman/users.sh"
lock_state
# shellcheck source=tests/podman/apt.sh
. "$here/../podman/apt.sh"
# shellcheck source=tests/clients/python.sh
. "$here/../clients/python.sh"
