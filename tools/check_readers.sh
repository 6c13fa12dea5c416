#!/bin/sh
# Checks that tests/corpus/readers.txt names every source that reads bytes from outside, and that
# the fuzz targets it names are there, with seeds.
# Usage: tools/check_readers.sh [source folder]
set -eu
cd "${1:-$(dirname "$0")/..}"
table=tests/corpus/readers.txt
calls='wd_json_(load|parse|parse_mapped)\(|wd_file_read\(|wd_safetensors_open(_stem)?\('
calls="$calls|(^|[^_a-zA-Z])(recv|getline|fgets|fread|f?scanf|sscanf|strto(l|ll|ul|ull|d|f))\("
calls="$calls|png_create_read_struct|FT_New_Face"
bad=0
readers=$(grep -rlE "$calls" src --include='*.c' --include='*.cc' |
    grep -vE '(_test|_fuzz)\.c$' | sort)
listed=$(sed -n 's/^\(src[^ ]*\) .*/\1/p' "$table")
for file in $readers; do
    echo "$listed" | grep -qx "$file" && continue
    echo "$file reads bytes from outside: add it to $table, with the fuzz target that attacks it"
    bad=1
done
for file in $listed; do
    echo "$readers" | grep -qx "$file" && continue
    echo "$table: $file reads nothing from outside: remove its line"
    bad=1
done
for target in $(sed -n 's/^src[^ ]* \([a-z][a-z_]*\/[a-z_\/]*\)$/\1/p' "$table" | sort -u); do
    [ -f "src/${target}_fuzz.c" ] && [ -n "$(ls "tests/corpus/$target" 2>/dev/null)" ] && continue
    echo "$table: there is no src/${target}_fuzz.c with seeds in tests/corpus/$target"
    bad=1
done
wrong=$(grep -vE '^(#.*|src/[^ ]+ ([a-z_]+/[a-z_/]+|none: .+))$' "$table" || true)
[ -z "$wrong" ] || { echo "$table: expected \"file target\" or \"file none: why\": $wrong"; bad=1; }
exit $bad
