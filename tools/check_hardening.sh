#!/bin/sh
# check_hardening.sh FILE...: fails unless each, a program or a shared library, has what
# cmake/hardening.cmake asks for, and if it may load libraries from the folder where it is started.
failed=0
expect()
{
    # $1: what is looked for, $2: options of readelf, $3: the pattern that shows it
    readelf $2 -W "$program" | grep -Eq "$3" && return
    echo "$program: no $1 (readelf $2 shows no line like \"$3\")"
    failed=1
}

command -v readelf >/dev/null || { echo "readelf is missing: install binutils"; exit 1; }
for program in "$@"; do
    expect "position-independent code" -h 'Type: +DYN'
    expect "read-only relocations" -l 'GNU_RELRO'
    expect "binding at the start" -d 'FLAGS.*NOW'
    expect "stack that is not executable" -l 'GNU_STACK .* RW +0x'
    expect "stack protector" --dyn-syms '__stack_chk_fail'
    expect "checked copies (_FORTIFY_SOURCE)" --dyn-syms '__(mem|str|vsn?|sn?)[a-z]*_chk'
    sh "$(dirname "$0")/check_runpath.sh" "$program" || failed=1
done
exit $failed
