#!/bin/sh
# Checks what `make bundle` packs: its size, that its parts load no library but the bundle's and the
# C library's and look for none in the current folder, that two ranks train from where it was
# unpacked, without an environment, and that its check of a GPU runs in a copy of the source, on a
# simulated device. The folder of the build is hidden meanwhile where this user may do that.
# Usage: tools/check_bundle.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2 most=$((20 << 20))
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
for program in "$build/make_pipeline" "$build/wandistiller"; do
    [ -x "$program" ] || { echo "$program is missing: build gpu_check_programs"; exit 1; }
done
BUNDLE_XZ=--lzma2=preset=1,dict=64MiB \
    "$source/tools/bundle.sh" "$build" "$stage/wandistiller.tar.xz"
bytes=$(stat -c %s "$stage/wandistiller.tar.xz")
[ "$bytes" -le $most ] || { echo "larger than $most bytes"; exit 1; }
mkdir "$stage/else where"
tar -C "$stage/else where" -xf "$stage/wandistiller.tar.xz"
bundle="$stage/else where/wandistiller"

find "$bundle" -type f \( -name '*.so*' -o -path '*/bin/*' -o -name gpu_tests -o \
    -name make_pipeline \) >"$stage/files"
xargs -d '\n' sh "$source/tools/check_runpath.sh" <"$stage/files"
while read -r file; do
    LD_LIBRARY_PATH="$bundle/lib" ldd "$file" | awk '$2 == "=>"' |
        grep -Ev "=> $bundle/lib/" |
        grep -Ev '^.(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so' |
        sed "s|^|$file loads |"
done <"$stage/files" >"$stage/outside"
[ ! -s "$stage/outside" ] || { cat "$stage/outside"; exit 1; }

printf 'a red apple\na blue cube\n' >"$stage/prompts.txt"
env -i HOME="$stage" PATH=/usr/bin:/bin "$bundle/wandistiller" train \
    --teacher_path "$source/models/wan-tiny" --data_path "$stage/prompts.txt" \
    --output_dir "$stage/student" --cache_dir "$stage/cache" --num_steps 2 --nproc_per_node 2
[ -s "$stage/student/model_index.json" ]

# A copy of the source without its build, as a clone is.
mkdir "$stage/clone"
tar -C "$source" --exclude=./build --exclude=./.git --exclude=./src -cf - . |
    tar -C "$stage/clone" -xf -
# The tests have the source's path in them.
cat >"$stage/hidden.sh" <<'HIDDEN'
mount -t tmpfs none "$SOURCE" && [ ! -e "$SOURCE/models" ] || exit
shift
exec "$@"
HIDDEN
hide="unshare -m sh $stage/hidden.sh"
SOURCE=$source $hide -- true 2>"$stage/said" || hide=
cd "$stage/clone"
# The exit status follows from figures, too, which mean nothing here.
# shellcheck disable=SC2086
env -i HOME="$stage" PATH=/usr/sbin:/usr/bin:/bin SOURCE="$source" DEVICE=sim:3GiB QUICK=1 \
    TMPDIR="$stage" REPORT="$stage/report.md" $hide ${hide:+--} \
    "$bundle/gpu-check" correct strategies steady || true
expected="different students|not the planned one"
[ ! -x "$bundle/check/gpu_tests" ] || expected="$expected|PyTorch and diffusers"
echo "$expected" | tr '|' '\n' >"$stage/expected"
while read -r words; do
    grep -q "$words.*| pass |\$" "$stage/report.md" || { cat "$stage/report.md"; exit 1; }
done <"$stage/expected"
[ -s "$stage/report.md.tar.gz" ]

# Elsewhere it says where it is to be run.
status=0
(cd "$stage" && "$bundle/gpu-check" 2>"$stage/said") || status=$?
[ $status -eq 2 ] && grep -q "run it in the folder of WanDistiller's source" "$stage/said"
[ -n "$hide" ] || echo "not tested here: gpu-check without the build: unshare is not allowed"
