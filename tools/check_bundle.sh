#!/bin/sh
# Checks what `make bundle` packs: its size, that its parts load no library but the bundle's and the
# C library's, and that two ranks train from where it was unpacked, without an environment.
# Usage: tools/check_bundle.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2 most=$((20 << 20))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
XZ_OPT=-1 "$source/tools/bundle.sh" "$build" "$stage/wandistiller.tar.xz"
bytes=$(stat -c %s "$stage/wandistiller.tar.xz")
[ "$bytes" -le $most ] || { echo "larger than $most bytes"; exit 1; }
mkdir "$stage/else where"
tar -C "$stage/else where" -xf "$stage/wandistiller.tar.xz"
bundle="$stage/else where/wandistiller"

find "$bundle/usr" "$bundle/lib" -type f \( -name '*.so*' -o -path '*/bin/*' \) |
    while read -r file; do
        LD_LIBRARY_PATH="$bundle/lib" ldd "$file" | awk '$2 == "=>"' | grep -v "=> $bundle/lib/" |
            grep -Ev '^.(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so' |
            sed "s|^|$file loads |"
    done >"$stage/outside"
[ ! -s "$stage/outside" ] || { cat "$stage/outside"; exit 1; }

printf 'a red apple\na blue cube\n' >"$stage/prompts.txt"
env -i HOME="$stage" PATH=/usr/bin:/bin "$bundle/wandistiller" train \
    --teacher_path "$source/models/wan-tiny" --data_path "$stage/prompts.txt" \
    --output_dir "$stage/student" --cache_dir "$stage/cache" --num_steps 2 --nproc_per_node 2
[ -s "$stage/student/model_index.json" ]
