#!/bin/sh
# Checks what `make bundle` packs: its size, that its parts load no library but the bundle's and the
# C library's and look for none in the current folder, that two ranks train from where it was
# unpacked, without an environment, and that its check of a GPU runs there, on a simulated device,
# without the source's folder.
# Usage: tools/check_bundle.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2 most=$((20 << 20))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
XZ_OPT=-1 "$source/tools/bundle.sh" "$build" "$stage/wandistiller.tar.xz" "$stage/check.tar.xz"
bytes=$(stat -c %s "$stage/wandistiller.tar.xz")
[ "$bytes" -le $most ] || { echo "larger than $most bytes"; exit 1; }
mkdir "$stage/else where"
for archive in wandistiller check; do
    tar -C "$stage/else where" -xf "$stage/$archive.tar.xz"
done
bundle="$stage/else where/wandistiller"

find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/tests/test_*' -o \
    -name make_pipeline \) >"$stage/files"
xargs -d '\n' sh "$source/tools/check_runpath.sh" <"$stage/files"
while read -r file; do
    LD_LIBRARY_PATH="$bundle/lib:$bundle/check/lib" ldd "$file" | awk '$2 == "=>"' |
        grep -Ev "=> $bundle/(check/)?lib/" |
        grep -Ev '^.(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so' |
        sed "s|^|$file loads |"
done <"$stage/files" >"$stage/outside"
[ ! -s "$stage/outside" ] || { cat "$stage/outside"; exit 1; }

printf 'a red apple\na blue cube\n' >"$stage/prompts.txt"
env -i HOME="$stage" PATH=/usr/bin:/bin "$bundle/wandistiller" train \
    --teacher_path "$source/models/wan-tiny" --data_path "$stage/prompts.txt" \
    --output_dir "$stage/student" --cache_dir "$stage/cache" --num_steps 2 --nproc_per_node 2
[ -s "$stage/student/model_index.json" ]

for program in "$build/make_pipeline" "$build/tests/test_tests_forward"; do
    [ -x "$program" ] || { echo "$program is missing: build gpu_check_programs"; exit 1; }
done
# Where this user may, the source's folder is hidden meanwhile: the tests have its path in them.
cat >"$stage/hidden.sh" <<'HIDDEN'
mount -t tmpfs none "$SOURCE" && [ ! -e "$SOURCE/models" ] || exit
shift
exec "$@"
HIDDEN
hide="unshare -m sh $stage/hidden.sh"
SOURCE=$source $hide -- true 2>"$stage/said" || hide=
mkdir "$stage/report"
cd "$stage/report"
# The exit status follows from figures, too, which mean nothing here.
# shellcheck disable=SC2086
env -i HOME="$stage" PATH=/usr/sbin:/usr/bin:/bin SOURCE="$source" DEVICE=sim:3GiB QUICK=1 \
    TMPDIR="$stage" $hide ${hide:+--} "$bundle/gpu-check" correct strategies steady || true
cat gpu-report.md >"$stage/report.md"
for words in "PyTorch and diffusers" "different students" "not the planned one"; do
    grep -q "$words.*| pass |\$" "$stage/report.md" || { cat "$stage/report.md"; exit 1; }
done
status=0
LD_LIBRARY_PATH="$bundle/lib:$bundle/check/lib" "$bundle/check/build/make_pipeline" \
    2>"$stage/said" || status=$?
[ $status -eq 2 ] && grep -q "^usage: make_pipeline" "$stage/said"
[ -n "$hide" ] || echo "not tested here: gpu-check without the source: unshare is not allowed"
