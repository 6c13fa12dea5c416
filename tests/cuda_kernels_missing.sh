#!/bin/sh
# Tests tools/check_cuda_kernels.sh with made-up output of nvcc: what lacks an architecture, warns,
# or spills registers is refused, and each refusal says what is wrong. Where nvcc fails,
# tools/compile_cuda_kernels.sh says what nvcc said, and what to do.
# Usage: tests/cuda_kernels_missing.sh SOURCE_FOLDER
set -eu
source=$1
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
printf '    X(norm)\n    X(cast)\n' >"$stage/list.h"

write_log() { # ARCHITECTURE...: what nvcc says when it compiles both kernels for these
    for architecture in "$@"; do
        for kernel in norm cast; do
            echo "ptxas info    : Compiling entry function 'wd_kernel_$kernel' for" \
                "'sm_$architecture'"
            echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
        done
    done >"$stage/log"
}

# An image of entries "KIND ARCHITECTURE", each with a header of 64 bytes and 8 bytes behind it.
write_image() { # KIND ARCHITECTURE...
    {
        printf '\120\355\125\272\1\0\20\0'
        head -c 8 /dev/zero
        while [ $# -gt 0 ]; do
            printf "\\$1\\0\\1\\1\\100\\0\\0\\0\\10\\0\\0\\0\\0\\0\\0\\0"
            head -c 12 /dev/zero
            printf "\\$(printf %o "$2")\\0\\0\\0"
            head -c 40 /dev/zero
            shift 2
        done
    } >"$stage/image"
}

check() {
    sh "$source/tools/check_cuda_kernels.sh" "$stage/log" "$stage/image" "$stage/list.h" \
        >"$stage/said" 2>&1
}
refused() { # WORDS
    if check || ! grep -q "$1" "$stage/said"; then
        echo "expected a refusal with: $1"
        cat "$stage/said"
        exit 1
    fi
}

write_log 80 86 89 90 100 120
write_image 2 80 1 80 2 86 2 89 2 90 2 100 2 120
check || { cat "$stage/said"; exit 1; }
write_image 2 80 1 80 2 86 2 89 2 90 2 100
refused "image has no machine code for sm_120"
write_image 2 80 2 86 2 89 2 90 2 100 2 120
refused "no PTX"
printf 'no image at all' >"$stage/image"
refused "image has no machine code for sm_80"
write_image 2 80 1 80 2 86 2 89 2 90 2 100 2 120
write_log 80 86 89 90 120
refused "the kernel norm is not compiled for sm_100"
write_log 80 86 89 90 100 120
echo "ptxas info    : 8 bytes spill stores" >>"$stage/log"
refused "keeps registers in memory"
write_log 80 86 89 90 100 120
echo "all.cu(3): warning #177-D: a variable is not used" >>"$stage/log"
refused "warns of our CUDA kernels"

# An nvcc that does not take the host's compiler.
cat >"$stage/nvcc" <<'NVCC'
#!/bin/sh
case $1 in
--list-gpu-code) echo sm_80 ;;
--help) ;;
*) echo "#error -- unsupported GNU version!" >&2; exit 1 ;;
esac
NVCC
chmod +x "$stage/nvcc"
status=0
sh "$source/tools/compile_cuda_kernels.sh" "$stage/nvcc" g++ "$stage/image" "$stage/log" all.cu \
    2>"$stage/said" || status=$?
for words in "unsupported GNU version" "nvcc cannot compile the kernels" "-DWD_CUDA=OFF"; do
    [ $status -eq 1 ] && grep -q -e "$words" "$stage/said" || {
        echo "expected an error with: $words"
        cat "$stage/said"
        exit 1
    }
done
