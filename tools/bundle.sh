#!/bin/sh
# Packs the built program with the libraries and the Open MPI that it runs on into one archive, for
# machines where nothing can be installed. The C library is the machine's own: it must be as new as
# that of the machine that builds. NVIDIA's driver and libraries are looked up at run time.
# Usage: tools/bundle.sh BUILD_FOLDER ARCHIVE.tar.xz
set -eu
build=$1 archive=$2
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

take_libraries() { # FILE: copies what it loads
    for library in $(libraries "$1"); do
        base=$(basename "$library")
        echo "$base" | grep -Eq "$from_system" || cp -L -n "$library" "$root/lib/$base"
    done
}

take_program() { # PATH NAME
    cp -L "$1" "$root/usr/bin/$2"
    strip "$root/usr/bin/$2"
    take_libraries "$root/usr/bin/$2"
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

take_program "$build/wandistiller" wandistiller
if command -v ompi_info >/dev/null; then
    for program in mpirun orted; do take_program "$(command -v $program)" $program; done
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
mkdir -p "$(dirname "$archive")"
tar -C "$stage" --owner=0 --group=0 --sort=name -cf - "$name" | xz -T2 >"$archive.part"
mv "$archive.part" "$archive"
echo "$archive: $(stat -c %s "$archive") bytes"
