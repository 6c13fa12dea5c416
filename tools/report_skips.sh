#!/bin/sh
# Lists what the tests left out on this machine, and why: they print a line "not tested here: WHAT:
# WHY" for each thing, which ctest keeps in its log.
# Usage: tools/report_skips.sh CTEST_LOG...
set -eu
left_out=$(for log in "$@"; do cat "$log"; done | sed -n 's/^not tested here: //p' | sort -u)
if [ -z "$left_out" ]; then
    echo "Nothing was left out on this machine."
    exit
fi
echo "Not tested on this machine: $(echo "$left_out" | wc -l)"
echo "$left_out" | sed 's/^/  /'
