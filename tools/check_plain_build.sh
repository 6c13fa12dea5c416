#!/bin/sh
# Checks that a build without CUDA (-DWD_CUDA=OFF) has no trace of it: that no source outside of
# src/dev/cuda includes more of that folder than cuda.h, or a header of NVIDIA's; and that absent.c,
# which takes the folder's place, defines the functions of cuda.h, calls nothing of the folder and
# names no library of NVIDIA's. If the build folder has a library without CUDA, the same of that.
# Usage: tools/check_plain_build.sh SOURCE_FOLDER BUILD_FOLDER CC
set -eu
cd "$1"
build=$2 compiler=$3 failed=0
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
libraries='lib(cuda|cublas|cublasLt|cudnn|nccl|nvrtc)\.so|cu(Init|(Mem|Ctx|Stream)[A-Z])'
libraries="$libraries|(cublas|cudnn|nccl)[A-Z]"
functions='wd_(device_open_)?cuda[a-z_]*'

fail() { # WHAT FILE: and the lines of the file
    [ -s "$2" ] || return 0
    awk -v what="$1" '{ print what ": " $0 }' "$2"
    failed=1
}

# Functions that an object defines, or a library's objects.
defined() { # FILE
    nm --defined-only "$1" | awk 'NF == 3 { print $3 }' | grep -E "^$functions\$" | sort -u
}

find src bench -name '*.[ch]' ! -path 'src/dev/cuda/*' ! -name '*_test.c' |
    xargs grep -nE '#include ["<](dev/cuda/|cuda|cublas|cudnn|nccl)' |
    grep -v '"dev/cuda.h"' >"$stage/includes" || true
fail "this needs CUDA" "$stage/includes"

# shellcheck disable=SC2086
$compiler -std=c17 -Isrc -Iinclude -c src/dev/cuda/absent.c -o "$stage/absent.o"
grep -oE "$functions\(" src/dev/cuda.h | tr -d '(' | sort -u >"$stage/declared"
defined "$stage/absent.o" >"$stage/defined"
diff "$stage/declared" "$stage/defined" >"$stage/differ" || true
fail "src/dev/cuda.h (<) and absent.c (>) differ" "$stage/differ"
nm --undefined-only "$stage/absent.o" | grep wd_cuda >"$stage/called" || true
fail "src/dev/cuda/absent.c calls" "$stage/called"

plain=$build/libwandistiller.a
[ -f "$plain" ] && ! nm "$plain" 2>/dev/null | grep -q wd_cuda_image || plain=
for file in "$stage/absent.o" $plain; do
    strings "$file" | grep -E "$libraries" >"$stage/names" || true
    fail "$(basename "$file") names" "$stage/names"
done
if [ -n "$plain" ]; then
    defined "$plain" | diff "$stage/declared" - >"$stage/differ" || true
    fail "the library without CUDA has (>) or lacks (<)" "$stage/differ"
fi
echo "$(wc -l <"$stage/declared") functions of cuda.h, ${plain:-and no library without CUDA}"
exit $failed
