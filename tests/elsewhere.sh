#!/bin/sh
# Rehearses the way to a GPU on a machine of another distribution: the bundle is unpacked by
# Python in a root of Debian 13 that has no xz, compiler or library of ours; gpu-check ends soon and
# says why where there is no driver; with a driver (standin/elsewhere.c) the program finds cuBLASLt,
# cuDNN and NVRTC in an environment as pip lays them, whose python3 PATH names by a link.
#
# Needs root, debootstrap and a mirror of Debian; the test is skipped without. The root is kept in
# the folder of the build.
# Usage: tests/elsewhere.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2 root=$2/elsewhere
skip() { echo "not tested here: checks/elsewhere: $*"; exit 77; }
[ -x "$build/gpu_tests" ] || skip "there is no nvcc, and so no program of tests on a GPU"
[ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null || skip "it needs root and namespaces"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
if [ ! -f "$root.ready" ]; then
    rm -rf "$root"
    timeout 300 debootstrap --variant=minbase --include=python3 trixie "$root" \
        http://deb.debian.org/debian >"$root.log" 2>&1 ||
        skip "no root of Debian 13 can be made: $(tail -n 1 "$root.log")"
    touch "$root.ready"
fi
for library in driver_elsewhere lt cudnn nccl; do
    [ -f "$build/libcuda_library_$library.so" ] || { echo "build all tests first"; exit 1; }
done

rm -rf "$root/source" "$root/opt" "$root/root/report" && mkdir -p "$root/source/tests" "$root/opt"
BUNDLE_XZ=-0 sh "$source/tools/bundle.sh" "$build" "$root/source/wandistiller.tar.xz"
cp -r "$source/tools" "$source/bench" "$source/models" "$root/source"
cp -r "$source/tests/fixtures" "$root/source/tests"

# An environment as `python3 -m venv` and pip make it, and a link to its Python.
packages=$root/opt/env/lib/python3.13/site-packages/nvidia
mkdir -p "$root/opt/env/bin" "$packages/cu13/lib" "$packages/cudnn/lib" "$packages/nccl/lib"
printf 'home = /usr/bin\n' >"$root/opt/env/pyvenv.cfg"
ln -s /usr/bin/python3 "$root/opt/env/bin/python3"
chmod 1777 "$root/opt/env"
cp "$build/libcuda_library_lt.so" "$packages/cu13/lib/libcublasLt.so.13"
cp "$build/libcuda_library_nccl.so" "$packages/cu13/lib/libnvrtc.so.13"
cp "$build/libcuda_library_cudnn.so" "$packages/cudnn/lib/libcudnn.so.9"
cp "$build/libcuda_library_nccl.so" "$packages/nccl/lib/libnccl.so.2"

inside() { # COMMAND: with a /proc of its own, which programs that begin anew need
    unshare -m sh -c 'mount -t proc none "$1/proc" && exec chroot "$1" env -i HOME=/root \
        TMPDIR=/tmp PATH=/opt/env/bin:/usr/bin:/bin sh -c "cd /source && $2"' sh "$root" "$1"
}
check=/source/wandistiller/gpu-check
! inside "command -v xz" || echo "this root has xz: the archive could be unpacked by it"
inside "python3 -m tarfile -e wandistiller.tar.xz /source" 2>"$root.log"

# Without a driver.
began=$(date +%s)
inside "REPORT=/root/report.md $check first" >"$root.said" 2>&1 && exit 1
[ $(($(date +%s) - began)) -le 60 ] || { echo "it took more than 60 s to say that"; exit 1; }
for step in properties.json k-matmul device fixtures; do
    grep -q "^$step .*: not run: .*no NVIDIA driver" "$root.said" || { cat "$root.said"; exit 1; }
done

# With a driver, whose GPU has no memory.
cp "$build/libcuda_library_driver_elsewhere.so" "$root/usr/lib/x86_64-linux-gnu/libcuda.so.1"
libraries=/source/wandistiller/lib
inside "LD_LIBRARY_PATH=$libraries wandistiller/check/gpu_tests properties" >"$root.said" 2>&1 ||
    true
rm "$root/usr/lib/x86_64-linux-gnu/libcuda.so.1"
for file in cu13/lib/libcublasLt.so.13 cu13/lib/libnvrtc.so.13 cudnn/lib/libcudnn.so.9 \
    nccl/lib/libnccl.so.2; do
    grep -q "\"/opt/env/lib/python3.13/site-packages/nvidia/$file\"" "$root.said" ||
        { echo "$file was not found:"; cat "$root.said"; exit 1; }
done
grep -q "could not allocate" "$root.said" || { cat "$root.said"; exit 1; }
