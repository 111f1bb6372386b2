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

# Prints the first Python of 3.12 or later, of those in PATH and of pyenv.
newer_python() {
    for python in python3 python3.12 python3.13 python3.14 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
        "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null || continue
        echo "$python"
        return
    done
}

environment .venv python3 tests/requirements.txt
# The package, and a program of a user.
.venv/bin/pyright --pythonpath .venv/bin/python
.venv/bin/mypy
.venv/bin/pytest -q -n "${JOBS:-3}" --ignore-glob 'tests/test_harbor*.py' --ignore tests/test_export.py "$@"
# Options may choose tests of those.
[ $# -eq 0 ] || exit 0

# Harbor needs a newer Python than the package.
newer=$(newer_python)
if [ -n "$newer" ]; then
    environment .venv-harbor "$newer" tests/requirements-harbor.txt
    .venv-harbor/bin/pyright --pythonversion 3.12 --pythonpath .venv-harbor/bin/python foldspace/harbor.py \
        foldspace/_compose.py
    # One after another: they build the same image.
    .venv-harbor/bin/pytest -q tests/test_harbor*.py tests/test_export.py
else
    echo "$0: the tests of Harbor are left out: there is no Python 3.12 or later" >&2
fi

# As a user has it: the wheel in its own environment, and the lines of README.md.
scratch=$(mktemp -d)
trap '"$FOLDSPACE_BIN" --data "$scratch/data" stop >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT
mkdir "$scratch/programs"
for program in foldspace foldspace-evaluator; do
    strip -o "$scratch/programs/$program" "$(dirname "$FOLDSPACE_BIN")/$program"
done
PYTHON=.venv/bin/python ./build.sh "$scratch/programs" "$scratch"
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install -q "$scratch"/*.whl
../release/try "$scratch/venv/bin/foldspace"
sed -n '/^```python$/,/^```$/p' README.md | sed '/^```$/q' | sed '/^```/d' >"$scratch/host.py"
sed 's/backend="host"/backend="podman"/' "$scratch/host.py" >"$scratch/podman.py"
(
    unset FOLDSPACE_BIN PYTHONPATH
    export FOLDSPACE_DATA="$scratch/data"
    cd "$scratch"
    venv/bin/python -m foldspace --version
    venv/bin/python -m foldspace doctor | grep -q "evaluator .*$scratch"
    venv/bin/python host.py >printed
    if [ -n "${CONTAINER_HOST:-}" ]; then
        venv/bin/python podman.py >>printed
    fi
    cat printed
    grep -q merged printed
)
echo "the wheel works in its own environment"
