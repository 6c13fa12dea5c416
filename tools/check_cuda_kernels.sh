#!/bin/sh
# Checks nvcc's messages about our CUDA kernels: no warnings, no register spills, every kernel
# compiled for every architecture that is named.
# Usage: tools/check_cuda_kernels.sh LOG LIST_OF_KERNELS
set -eu
log=$1 list=$2
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
architectures=$(sed -n "s/.*Compiling entry function .* for '\(sm_[0-9a-z]*\)'.*/\1/p" "$log" |
    sort -u)
[ -n "$kernels" ] && [ -n "$architectures" ] || {
    echo "$log names no kernels"
    exit 1
}
for kernel in $kernels; do
    for architecture in $architectures; do
        grep -q "Compiling entry function 'wd_kernel_$kernel' for '$architecture'" "$log" || {
            echo "the kernel $kernel is not compiled for $architecture"
            bad=1
        }
    done
done
echo "$(echo "$kernels" | wc -l) kernels for" $architectures
[ "$bad" -eq 0 ]
