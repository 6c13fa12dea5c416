#!/bin/sh
# Checks the result of `make install`: the files exist, the program looks for no library in the
# current folder, manual and completions are valid, the examples build with pkg-config and with
# CMake, with the shared and with the static library, and run.
# Usage: tools/check_install.sh SOURCE_FOLDER BUILD_FOLDER C_COMPILER [compiler flags]
set -eu
source=$1 build=$2 cc=$3
shift 3
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cmake --install "$build" --prefix "$stage" >/dev/null

find_one() { # NAME: the installed file of that name
    found=$(find "$stage" -name "$1" -type f)
    [ -s "$found" ] || { echo "$1 is not installed, or empty"; exit 1; }
    echo "$found"
}
for name in libwandistiller.a wandistiller.h wandistiller_status.h wandistiller.1 _wandistiller; do
    find_one "$name" >/dev/null
done
[ -s "$stage/share/zsh/site-functions/_wandistiller" ] ||
    { echo "zsh finds completions in site-functions only, and none are there"; exit 1; }
"$stage/bin/wandistiller" --version | grep -q "^GPU kernels: " ||
    { echo "--version does not say whether there are GPU kernels"; exit 1; }
library=$(find_one 'libwandistiller.so.*.*')
sh "$source/tools/check_runpath.sh" "$stage/bin/wandistiller" "$library"
bash -n "$stage/share/bash-completion/completions/wandistiller"
! command -v zsh >/dev/null || zsh -n "$(find_one _wandistiller)"
! command -v mandoc >/dev/null || mandoc -T lint -W error "$(find_one wandistiller.1)"

PKG_CONFIG_PATH=$(dirname "$(find_one wandistiller.pc)")
export PKG_CONFIG_PATH
LD_LIBRARY_PATH=$(dirname "$library")
export LD_LIBRARY_PATH
paint() { # PROGRAM
    rm -f "$stage/apple.png"
    "$1" "$source/models/wan-tiny" "a red apple" "$stage/apple.png"
    [ -s "$stage/apple.png" ]
}
loads() { # PROGRAM: whether it loads the shared library
    readelf -d -W "$1" | grep -q 'NEEDED.*libwandistiller'
}
for example in "$source"/examples/*.c; do
    program=$stage/$(basename "$example" .c)
    # shellcheck disable=SC2046
    "$cc" -std=c17 -Wall -Wextra -Werror "$@" "$example" -o "$program" \
        $(pkg-config --cflags --libs wandistiller)
    loads "$program" || { echo "$program does not load libwandistiller.so"; exit 1; }
    # shellcheck disable=SC2046
    "$cc" -std=c17 -Wall -Wextra -Werror "$@" "$example" -o "$program-static" \
        $(pkg-config --static --cflags --libs wandistiller |
            sed 's/-lwandistiller/-l:libwandistiller.a/')
    ! loads "$program-static" || { echo "$program-static loads libwandistiller.so"; exit 1; }
done
paint "$stage/sample"
paint "$stage/sample-static"

mkdir "$stage/project"
cat >"$stage/project/CMakeLists.txt" <<'PROJECT'
cmake_minimum_required(VERSION 3.25)
project(example LANGUAGES C)
find_package(wandistiller 0.1 REQUIRED)
foreach(kind wandistiller static)
  add_executable(sample_${kind} ${EXAMPLE})
  target_link_libraries(sample_${kind} PRIVATE wandistiller::${kind})
endforeach()
PROJECT
cmake -S "$stage/project" -B "$stage/project/build" -DCMAKE_PREFIX_PATH="$stage" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$*" -DEXAMPLE="$source/examples/sample.c" >/dev/null
cmake --build "$stage/project/build" >/dev/null
loads "$stage/project/build/sample_wandistiller"
! loads "$stage/project/build/sample_static"
paint "$stage/project/build/sample_wandistiller"
paint "$stage/project/build/sample_static"
echo "installed, and used by $(ls "$source"/examples/*.c | wc -l) examples"
