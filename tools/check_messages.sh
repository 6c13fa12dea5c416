#!/bin/sh
# Checks that docs/troubleshooting.md quotes messages about GPUs in the program's own words: every
# part of a message in the first column of that table, where "..." stands for what differs from run
# to run, must be in a string of the sources.
# Usage: tools/check_messages.sh [source folder]
set -eu
cd "${1:-$(dirname "$0")/..}"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# The sources in one line, with neighbouring strings joined as a compiler joins them.
find src -name '*.[ch]' ! -name '*_test.c' -exec cat {} + | tr '\n' ' ' |
    sed 's/" *"//g; s/\\"/"/g' >"$stage/sources"

awk -F'|' '/^\| message about GPUs \|/ { on = 1; next }
    !/^\|/ { on = 0 }
    on && !/^\|-/ { n = split($2, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' \
    docs/troubleshooting.md >"$stage/messages"
[ -s "$stage/messages" ] ||
    { echo "docs/troubleshooting.md: the table of messages about GPUs was not found"; exit 1; }
failed=0
while read -r message; do
    printf '%s\n' "$message" | sed 's/\.\.\./\n/g' | sed 's/^ *//; s/ *$//' | grep -v '^$' \
        >"$stage/parts"
    while read -r part; do
        grep -qF -- "$part" "$stage/sources" && continue
        echo "docs/troubleshooting.md: no message of the program has the words: $part"
        failed=1
    done <"$stage/parts"
done <"$stage/messages"
echo "$(wc -l <"$stage/messages") messages about GPUs, $failed unknown"
exit $failed
