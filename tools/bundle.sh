#!/bin/sh
# Packs the built program with the libraries and the Open MPI that it runs on into one archive, for
# machines where nothing can be installed. The C library is the machine's own: it must be as new as
# that of the machine that builds. NVIDIA's driver and libraries are looked up at run time.
# Beside the program are the programs of `make gpu-check` and its script, gpu-check, which is run in
# the source's folder: models, golden values and scripts are there.
# Usage, in any folder: tools/bundle.sh BUILD_FOLDER ARCHIVE.tar.xz
set -eu
build=$1 archive=$2
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

take_libraries() { # FILE: copies what it loads and the bundle does not have yet
    for library in $(libraries "$1"); do
        base=$(basename "$library")
        echo "$base" | grep -Eq "$from_system" || [ -f "$root/lib/$base" ] ||
            cp -L "$library" "$root/lib/$base"
    done
}

take_program() { # PATH PLACE
    cp -L "$1" "$2"
    strip "$2"
    take_libraries "$2"
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

# ---- what checks a GPU: a folder like the one of a build ----

check=$root/check
mkdir -p "$check"
for program in gpu_tests make_pipeline; do
    [ ! -x "$build/$program" ] || take_program "$build/$program" "$check/$program"
done
ln -s ../wandistiller "$check/wandistiller"
cat >"$root/gpu-check" <<'WRAPPER'
#!/bin/sh
# Checks and measures a GPU. Run it in the folder of the source, such as a git clone. Parts, and
# what it reads from the environment: see tools/gpu_check.sh there. REPORT names the report's file.
# Usage: gpu-check [PART...]
root=$(dirname "$(readlink -f "$0")")
if [ ! -f tools/gpu_check.sh ] || [ ! -d models/wan-tiny ]; then
    echo "gpu-check: this folder has no tools/gpu_check.sh and models/wan-tiny: run it in the" \
        "folder of WanDistiller's source (git clone)" >&2
    exit 2
fi
export GPU_CHECK_LIBRARIES="$root/lib"
exec sh tools/gpu_check.sh "$root/check" "${REPORT:-$PWD/gpu-report.md}" "$@"
WRAPPER
chmod +x "$root/gpu-check"

# The programs have much in common, which a dictionary as large as all of them sees.
mkdir -p "$(dirname "$archive")"
tar -C "$stage" --owner=0 --group=0 --sort=name -cf - "$name" |
    xz -T1 ${BUNDLE_XZ:---lzma2=preset=6,dict=64MiB} >"$archive.part"
mv "$archive.part" "$archive"
echo "$archive: $(stat -c %s "$archive") bytes"
