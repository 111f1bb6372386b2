#!/bin/sh
# Builds a wheel with built programs: python/build.sh DIRECTORY DESTINATION
#
# DIRECTORY has foldspace and foldspace-evaluator, and may have LICENSES-THIRD-PARTY.txt. Static programs run on any
# Linux, and the wheel says so. pip downloads the build backend.
set -eu
[ $# -eq 2 ] || { echo "usage: $0 DIRECTORY DESTINATION" >&2; exit 2; }
from=$(realpath "$1")
mkdir -p "$2"
to=$(realpath "$2")
cd "$(dirname "$0")"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

header() { readelf -hlW "$from/foldspace"; }
case $(header | sed -n 's/^ *Machine: *//p') in
    *X86-64*) arch=x86_64 ;;
    AArch64) arch=aarch64 ;;
    *) echo "$0: $from/foldspace is no program for x86_64 or aarch64" >&2; exit 1 ;;
esac
if header | grep -q INTERP; then
    tag=linux_$arch
else
    tag=manylinux2014_$arch.manylinux_2_17_$arch.musllinux_1_1_$arch
fi
mkdir "$stage/programs"
install -m 755 "$from/foldspace" "$from/foldspace-evaluator" "$stage/programs"
cp -r foldspace hatch_build.py pyproject.toml README.md ../LICENSE-APACHE ../LICENSE-MIT "$stage"
find "$stage" -name __pycache__ -prune -exec rm -r {} +
[ ! -f "$from/LICENSES-THIRD-PARTY.txt" ] || cp "$from/LICENSES-THIRD-PARTY.txt" "$stage"
FOLDSPACE_PROGRAMS=$stage/programs FOLDSPACE_WHEEL_TAG=py3-none-$tag \
    "${PYTHON:-python3}" -m pip wheel --quiet --no-deps --wheel-dir "$to" "$stage"
