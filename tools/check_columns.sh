#!/bin/sh
# Checks that no line of the sources has more than 100 columns.
# Usage: tools/check_columns.sh [source folder]
set -eu
cd "${1:-$(dirname "$0")/..}"
files=$(find src bench tests include examples python tools cmake Makefile CMakeLists.txt \
    pyproject.toml -type f ! -path "tests/corpus/*/*" \
    ! -name '*.md' ! -name '*.json' ! -name '*.safetensors' ! -path '*/__pycache__/*')
# shellcheck disable=SC2086
if LC_ALL=C.UTF-8 grep -nEI '^.{101,}' $files; then
    echo "these lines are longer than 100 columns"
    exit 1
fi
echo "$(echo "$files" | wc -l) files, no line longer than 100 columns"
