#!/bin/sh
# Packs the built program with the libraries and the Open MPI that it runs on into one archive, for
# machines where nothing can be installed. The C library is the machine's own: it must be as new as
# that of the machine that builds. NVIDIA's driver and libraries are looked up at run time.
# A second archive, which is unpacked in the same place, has what `make gpu-check` runs: its script
# as FOLDER/gpu-check, tests of the device, the embedded teacher, and values to compare with.
# Usage, in any folder: tools/bundle.sh BUILD_FOLDER ARCHIVE.tar.xz [GPU_CHECK.tar.xz]
set -eu
build=$1 archive=$2 check_archive=${3:-}
source=$(cd "$(dirname "$0")/.." && pwd)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
name=$(basename "$archive" .tar.xz)
root=$stage/$name
mkdir -p "$root/lib" "$root/usr/bin"

from_system='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so' # theirs, not ours

libraries() { # FILE: the paths of the shared libraries that it loads
    ldd "$1" | awk '$2 == "=>" { print $3 }'
}

found() { # FILE: whether all libraries that it loads are on this machine
    ! ldd "$1" | grep -q 'not found'
}

take_libraries() { # FILE [FOLDER]: copies what it loads and the bundle does not have yet
    for library in $(libraries "$1"); do
        base=$(basename "$library")
        echo "$base" | grep -Eq "$from_system" || [ -f "$root/lib/$base" ] ||
            cp -L "$library" "${2:-$root/lib}/$base"
    done
}

take_program() { # PATH PLACE [LIBRARIES]
    cp -L "$1" "$2"
    strip "$2"
    take_libraries "$2" "${3:-}"
}

pack() { # ARCHIVE
    mkdir -p "$(dirname "$1")"
    tar -C "$stage" --owner=0 --group=0 --sort=name -cf - "$name" | xz -T2 >"$1.part"
    mv "$1.part" "$1"
    echo "$1: $(stat -c %s "$1") bytes"
}

# Plugins for networks whose drivers a cluster has of its own would need their libraries, too.
take_plugins() { # FOLDER
    mkdir -p "$root$1"
    for plugin in "$1"/*.so; do
        case $plugin in *_ucx.so | *_ofi.so | *_psm.so | *_psm2.so | *_openib.so) continue ;; esac
        found "$plugin" || continue
        cp "$plugin" "$root$plugin"
        take_libraries "$plugin"
    done
}

if "$build/wandistiller" plan --teacher_path "$source/models/wan-tiny" \
    --devices cuda:0@link=25GB/s,compute=1TFLOP/s 2>&1 | grep "this build has no CUDA"; then
    echo "warning: $archive computes on processors only: its program was built without nvcc" >&2
fi
take_program "$build/wandistiller" "$root/usr/bin/wandistiller"
if command -v ompi_info >/dev/null; then
    for program in mpirun orted; do
        take_program "$(command -v $program)" "$root/usr/bin/$program"
    done
    ompi_path() { ompi_info --path "$1" --parsable | cut -d: -f3; }
    take_plugins "$(ompi_path pkglibdir)"
    for pmix in /usr/lib/*/pmix*/lib/pmix; do [ ! -d "$pmix" ] || take_plugins "$pmix"; done
    for texts in "$(ompi_path pkgdatadir)" /usr/share/pmix; do
        [ ! -d "$texts" ] || { mkdir -p "$root$texts"; cp "$texts"/*.txt "$root$texts"; }
    done
fi
for library in "$root"/lib/*; do strip --strip-unneeded "$library"; done

cat >"$root/wandistiller" <<'WRAPPER'
#!/bin/sh
# Runs the bundled program on the bundled libraries, wherever this folder lies.
root=$(dirname "$(readlink -f "$0")")
export PATH="$root/usr/bin:$PATH"
export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPAL_PREFIX="$root/usr" PMIX_INSTALL_PREFIX="$root/usr"
exec "$root/usr/bin/wandistiller" "$@"
WRAPPER
chmod +x "$root/wandistiller"
pack "$archive"
[ -n "$check_archive" ] || exit 0

# ---- what checks a GPU, laid out as the source's folder and its build ----

check=$root/check
mkdir -p "$check/build/tests" "$check/lib" "$check/models" "$check/tests/fixtures" \
    "$check/tools" "$check/bench"
for test in "$build"/tests/test_gpu_* "$build/tests/test_tests_forward" \
    "$build/tests/test_tests_sample"; do
    [ ! -x "$test" ] || take_program "$test" "$check/build/tests/$(basename "$test")" "$check/lib"
done
take_program "$build/make_pipeline" "$check/build/make_pipeline" "$check/lib"
cp -r "$source/models/wan-tiny" "$check/models"
for values in dit-image dit-head128 dit-video umt5 vae-2.1 vae-2.1-video vae-2.2 pipeline; do
    cp -r "$source/tests/fixtures/$values" "$check/tests/fixtures"
done
cp "$source"/tools/gpu_check*.sh "$source/tools/demo.json" "$check/tools"
cp "$source/bench/pytorch.py" "$source/bench/pytorch_models.py" "$check/bench"

cat >"$check/build/wandistiller" <<'WRAPPER'
#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/../../wandistiller" "$@"
WRAPPER
cat >"$root/gpu-check" <<'WRAPPER'
#!/bin/sh
# Checks and measures a GPU, and writes gpu-report.md into the current folder. Parts, and what it
# reads from the environment: see check/tools/gpu_check.sh.
# Usage: gpu-check [PART...]
root=$(dirname "$(readlink -f "$0")")
export GPU_CHECK_LIBRARIES="$root/lib:$root/check/lib"
exec sh "$root/check/tools/gpu_check.sh" "$root/check/build" "$PWD/gpu-report.md" "$@"
WRAPPER
chmod +x "$check/build/wandistiller" "$root/gpu-check"
rm -rf "$root/usr" "$root/lib" "$root/wandistiller" # which the first archive has
pack "$check_archive"
