#!/bin/sh
# Installs the Python package, with a library that is built already, into an environment of its own
# below the build folder, and runs its tests. Ends with 77, which CTest takes for "skipped", where
# there is no Python with venv, or where pip cannot get what it needs.
# Usage: tools/check_python.sh SOURCE_FOLDER BUILD_FOLDER LIBRARY PROGRAM
set -eu
source=$1 build=$2 library=$3 WD_PROGRAM=$4
export WD_PROGRAM PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
skip() { # WHY
    echo "not tested here: checks/python: $1"
    exit 77
}
place=$build/tests/python
python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
    skip "there is no python3 of 3.9 or later with venv"
mkdir -p "$build/tests"
if [ ! -e "$place/ready" ]; then
    rm -rf "$place"
    python3 -m venv "$place" || skip "python3 -m venv fails"
    "$place/bin/pip" install -q "pip>=23.1" "scikit-build-core>=0.10" pytest numpy ||
        skip "pip cannot get scikit-build-core, pytest and numpy"
    touch "$place/ready"
fi
PATH=$place/bin:$PATH
pip install -q --no-build-isolation --no-deps --force-reinstall \
    -C build-dir="$place/package" -C cmake.define.WD_PYTHON_LIBRARY="$library" "$source"
cd "$place"
exec python -m pytest -q -p no:cacheprovider --durations=3 "$source/python/tests"
