#!/bin/sh
# check_runpath.sh FILE...: fails if one of these programs or libraries looks for its libraries in
# a folder that depends on where it is started. The dynamic linker takes an empty element of a
# RUNPATH for the current folder, so whoever can write there could make the program run their code.
set -eu
command -v readelf >/dev/null || { echo "readelf is missing: install binutils"; exit 1; }
[ $# -gt 0 ] || { echo "usage: check_runpath.sh FILE..."; exit 1; }
failed=0
for file in "$@"; do
    dynamic=$(readelf -d -W "$file") || { echo "$file: readelf cannot read it"; exit 1; }
    folders=$(printf '%s\n' "$dynamic" | sed -n 's/.*(R\(UN\)*PATH).*\[\(.*\)\]$/\2/p')
    printf '%s\n' "$dynamic" | sed -n 's/.*(R\(UN\)*PATH).*\[\(.*\)\]$/:\2:/p' |
        grep -Eq '::|:[^/$:]|:\$[^O{]' || continue
    echo "$file: its RUNPATH is \"$folders\": expected absolute folders alone, without an empty" \
        "element: see BUILD_WITH_INSTALL_RPATH in cmake/library.cmake"
    failed=1
done
exit $failed
