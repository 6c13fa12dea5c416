#!/bin/sh
# Checks that every C, C++ and CUDA source in the repository has the layout of .clang-format. Major
# versions of clang-format differ in what they make of the same settings: version 14 decides, which
# Debian 12 has, and a machine with none but others skips the check.
# Usage: tools/check_format.sh [source folder]
set -eu
major=14
cd "${1:-$(dirname "$0")/..}"
skip()
{
    echo "not tested here: checks/format: $1"
    exit 77
}

formatter=
for name in "clang-format-$major" clang-format; do
    case "$("$name" --version 2>/dev/null || true)" in
    *"clang-format version $major."*) formatter=$name && break ;;
    esac
done
[ -n "$formatter" ] || skip "there is no clang-format $major"

list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files -z '*.c' '*.h' '*.cc' '*.cu' '*.cuh' >"$list" 2>/dev/null || true
[ -s "$list" ] || skip "this is no clone, where git lists the sources"
if ! xargs -0 -n 64 -P "$(nproc)" "$formatter" --dry-run --Werror <"$list"; then
    echo "these sources have another layout: run $formatter -i on them"
    exit 1
fi
echo "$(tr -cd '\0' <"$list" | wc -c) sources have the layout of .clang-format"
