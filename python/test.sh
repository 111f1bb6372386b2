#!/bin/sh
# Tests the Python package against a binary: python/test.sh path/to/foldspace [options of pytest]
# On Podman, too, where CONTAINER_HOST and FOLDSPACE_IMAGE are set.
set -eu
[ $# -ge 1 ] || { echo "usage: $0 BINARY [OPTION...]" >&2; exit 2; }
FOLDSPACE_BIN=$(realpath "$1")
shift
cd "$(dirname "$0")"
export FOLDSPACE_BIN PYTHONPATH="$PWD"

# environment DIR PYTHON FILE: makes a virtual environment, again when what it needs has changed
environment() {
    cmp -s "$3" "$1/installed" && return
    rm -rf "$1"
    "$2" -m venv "$1"
    "$1/bin/pip" install -q uv
    "$1/bin/uv" pip install -q --python "$1/bin/python" -r "$3"
    cp "$3" "$1/installed"
}

environment .venv python3 tests/requirements.txt
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/pytest -q -n "${JOBS:-3}" "$@"
