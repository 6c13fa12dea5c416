#!/bin/sh
# Checks what programs see of the shared library: that it exports the functions that the public
# headers declare with WD_API and no other symbol, that these are the functions of the list in
# tests/interface.txt, and that its name and its version are those of the header. A function that
# programs may call is never taken away while the number in the library's name stays; a new one gets
# a line in the list. tests/interface_test.c has the sizes of structs.
# Usage: tools/check_library.sh SOURCE_FOLDER LIBRARY
set -eu
source=$1 library=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
command -v readelf >/dev/null || { echo "readelf is missing: install binutils"; exit 1; }

sed -n 's/^WD_API .*[ *]\(wd_[a-z0-9_]*\)(.*/\1/p' "$source"/include/*.h | sort >"$stage/declared"
marked=$(cat "$source"/include/*.h | grep -c '^ *WD_API')
[ "$marked" -eq "$(wc -l <"$stage/declared")" ] ||
    { echo "a line of include/*.h has WD_API and no function's name"; exit 1; }
! grep -nE '^[a-z].*wd_[a-z0-9_]+\(' "$source"/include/*.h | grep -vE ':(typedef|static) ' ||
    { echo "a function of a public header has no WD_API"; exit 1; }
grep -v '^#' "$source/tests/interface.txt" | sort >"$stage/listed"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    sort >"$stage/exported"
failed=0
same() { # A B WHAT
    diff "$1" "$2" >"$stage/differ" && return
    echo "$3:"
    cat "$stage/differ"
    failed=1
}
same "$stage/declared" "$stage/exported" "the headers declare (<), the library exports (>)"
same "$stage/declared" "$stage/listed" "the headers declare (<), tests/interface.txt lists (>)"

version=$(sed -n 's/^#define WD_VERSION "\(.*\)"/\1/p' "$source/include/wandistiller.h")
soname=$(readelf -d -W "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]$/\1/p')
[ "$soname" = "libwandistiller.so.${version%%.*}" ] ||
    { echo "SONAME: expected libwandistiller.so.${version%%.*}, found $soname"; failed=1; }
[ "$(basename "$(readlink -f "$library")")" = "libwandistiller.so.$version" ] ||
    { echo "$library: expected the file libwandistiller.so.$version"; failed=1; }
echo "$(wc -l <"$stage/exported") functions"
exit $failed
