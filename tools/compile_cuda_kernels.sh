#!/bin/sh
# Compiles our CUDA kernels into one image with machine code for every architecture that this nvcc
# knows of those that we name, or that CUDA_ARCHS in the environment names, and PTX for the rest.
# What the compiler says goes to a log, which tools/check_cuda_kernels.sh reads.
# Usage: tools/compile_cuda_kernels.sh NVCC HOST_COMPILER IMAGE LOG [flags] SOURCE
#        tools/compile_cuda_kernels.sh --architectures    prints the architectures that we name
set -eu
architectures=${CUDA_ARCHS:-80 86 89 90 100 120}
[ "$1" != --architectures ] || { echo "$architectures"; exit; }
nvcc=$1 host=$2 image=$3 log=$4
shift 4
known=$("$nvcc" --list-gpu-code)
code="-gencode=arch=compute_80,code=compute_80"
for architecture in $architectures; do
    case "$known" in
    *"sm_$architecture"*)
        code="$code -gencode=arch=compute_$architecture,code=sm_$architecture" ;;
    esac
done
"$nvcc" --help | grep -q -e --compress-mode && code="$code --compress-mode=size"
# Sums are taken as they are written: no contraction, correctly rounded roots and quotients,
# denormals kept.
# shellcheck disable=SC2086
"$nvcc" -fatbin -std=c++17 -O3 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --threads 2 \
    -Xptxas -v,-warn-spills -ccbin "$host" $code "$@" -o "$image" >"$log" 2>&1 || {
    cat "$log" >&2
    echo "$nvcc cannot compile the kernels for NVIDIA GPUs with $host: install CUDA 13, put" \
        "another nvcc first into PATH, or leave them out: make CMAKE_FLAGS=-DWD_CUDA=OFF" >&2
    exit 1
}
