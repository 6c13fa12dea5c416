#!/bin/sh
# Checks our CUDA kernels as nvcc has made them: no warnings, no register spills, every kernel
# compiled for every architecture that docs/gpu.md promises, and the image has machine code for each
# of these, and PTX for later ones.
# Usage: tools/check_cuda_kernels.sh LOG IMAGE LIST_OF_KERNELS
set -eu
log=$1 image=$2 list=$3
bad=0
if grep -in 'warning' "$log"; then
    echo "the compiler warns of our CUDA kernels"
    bad=1
fi
if grep -n '[1-9][0-9]* bytes spill' "$log"; then
    echo "a CUDA kernel keeps registers in memory"
    bad=1
fi
kernels=$(sed -n 's/^ *X(\([a-z0-9_]*\)).*/\1/p' "$list")
architectures=$(sh "$(dirname "$0")/compile_cuda_kernels.sh" --architectures)
[ -n "$kernels" ] || { echo "$list names no kernels"; exit 1; }
for kernel in $kernels; do
    for architecture in $architectures; do
        grep -q "Compiling entry function 'wd_kernel_$kernel' for 'sm_$architecture'" "$log" || {
            echo "the kernel $kernel is not compiled for sm_$architecture"
            bad=1
        }
    done
done

# What the image holds, one "KIND ARCHITECTURE" a line; kind 1 is PTX, 2 machine code. A header of
# 16 bytes, then entries: kind in 2 bytes, size of the entry's header at byte 4, of what follows it
# at byte 8, architecture at byte 28.
number_at() { # OFFSET BYTES
    od -An -v -tu"$2" -j "$1" -N "$2" "$image" | tr -d ' '
}
entries() {
    [ "$(number_at 0 4)" = 3126193488 ] || return # the mark of such files
    end=$(stat -c %s "$image") at=16
    while [ "$at" -lt "$end" ]; do
        echo "$(number_at "$at" 2) $(number_at $((at + 28)) 4)"
        header=$(number_at $((at + 4)) 4)
        [ "$header" -ge 32 ] || return
        at=$((at + header + $(number_at $((at + 8)) 8)))
    done
}
held=$(entries) || true # whatever could be read
for architecture in $architectures; do
    echo "$held" | grep -qx "2 $architecture" || {
        echo "$image has no machine code for sm_$architecture"
        bad=1
    }
done
echo "$held" | grep -q '^1 ' || { echo "$image has no PTX for later architectures"; bad=1; }
echo "$(echo "$kernels" | wc -l) kernels for" $architectures
[ "$bad" -eq 0 ]
