#!/bin/sh
# Checks that every header compiles alone, and the public ones as C++, too.
# Usage: tools/check_headers.sh SOURCE_FOLDER C_COMPILER CXX_COMPILER [flags]
# A compiler may have words of its own: "ccache g++". A header of dev/cpu/isa is compiled as for the
# generic instruction set.
set -eu
cd "$1"
cc=$2 cxx=$3
shift 3
bad=0 count=0
for header in $(find include src bench tests/standin tests/kernels tests/harness \
    -name '*.h' | sort); do
    count=$((count + 1))
    $cc -std=c17 -D_GNU_SOURCE -DWD_ISA=generic -Wall -Wextra -Werror -Wno-unused-function \
        -Wno-pragma-once-outside-header -fsyntax-only -Iinclude -Isrc -I. -Itests "$@" \
        -DWD_SOURCE_DIR='"."' -x c -include "$header" /dev/null || {
        echo "$header does not compile alone"
        bad=$((bad + 1))
    }
done
for header in $(find src -name '*.cuh' | sort); do # CUDA, as the host's compiler sees it
    count=$((count + 1))
    $cxx -std=c++17 -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only -Iinclude -Isrc \
        -Itests -x c++ -include "$header" /dev/null || {
        echo "$header does not compile alone"
        bad=$((bad + 1))
    }
done
for header in include/*.h; do
    $cxx -std=c++17 -Wall -Wextra -Werror -pedantic -fsyntax-only -Iinclude -x c++ \
        -include "$header" /dev/null || {
        echo "$header is not C++"
        bad=$((bad + 1))
    }
done
echo "$count headers, $bad do not compile alone"
[ "$bad" -eq 0 ]
