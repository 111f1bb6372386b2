#!/bin/sh
# Builds the wheel of this machine's kind of processor into python/dist. It needs Rust, gcc with a static C library,
# and Python with venv. For another kind: TARGET=aarch64-unknown-linux-gnu FOLDSPACE_RUNNER_LINKER=aarch64-linux-gnu-gcc
set -eu
cd "$(dirname "$0")"
target=${TARGET:-$(uname -m)-unknown-linux-gnu}
tools=.venv-build
[ -x $tools/bin/maturin ] || {
    python3 -m venv $tools
    $tools/bin/pip install -q maturin==1.16.0 cargo-zigbuild==0.24.0 ziglang==0.17.0
}
# The runner in it is linked statically, by the C compiler of the processor.
export FOLDSPACE_RUNNER_LINKER="${FOLDSPACE_RUNNER_LINKER:-cc}"
PATH="$PWD/$tools/bin:$PATH"
rm -rf dist
maturin build --zig --profile dist --target "$target" --compatibility manylinux_2_17 --out dist
# The evaluator, so that Python runs without a container.
(cd .. && cargo zigbuild --locked --profile dist -p foldspace-evaluator --target "$target.2.17")
python3 add_program.py dist/*.whl "../target/$target/dist/foldspace-evaluator"
