#!/bin/sh
# Checks that programs that are linked with a release run with this library: builds the shared
# library of both with debug information, and compares with abidiff what the public headers show of
# them. New functions are allowed, and so are fields that take the place of `reserved` words. Any
# other difference is refused, unless the number in the library's name has been raised. Ends with
# 77, which CTest takes for "skipped", where there is no release or no abidiff.
# Usage: tools/check_abi.sh [BASE]    BASE: a commit; the newest release, a tag v1.2.3, if not given
#        tools/check_abi.sh compare LIBRARY HEADERS NEW_LIBRARY NEW_HEADERS
set -eu
skip() { # WHY
    echo "not tested here: checks/abi: $1"
    exit 77
}

# Suppressions for abidiff, of what its report of leaf changes ($1) says of structs whose one change
# is that new fields stand where `reserved` words did, and of structs that have such a one inside.
# abidiff's own has_data_member_inserted_between is of no use: it also hides what has happened to
# the other fields of the struct. A line that is not known here is a change that is refused.
taken_from_reserved() {
    awk '
        function name_of(line) {
            sub(/^.*\047struct /, "", line)
            sub(/( at |\047).*/, "", line)
            return line
        }
        function is_good(s,    inner, n, i) {
            if (bad[s] || !same_size[s]) return 0
            n = split(inside[s], inner, " ")
            for (i = 1; i <= n; i++) if (!is_good(inner[i])) return 0
            if (s in first || s in from) return s in first && s in from && first[s] >= from[s]
            return n > 0
        }
        {
            indent = match($0, /[^ ]/) - 1
            if (indent < 0) next
            while (depth && indent <= at[depth]) depth--
            outer = name[depth]
            deep = depth ? indent - at[depth] : 0
            text = substr($0, indent + 1)
        }
        /^\047struct .* changed:$/ ||
        (deep == 6 && last[outer] == "struct" && /^ *underlying type \047struct .* changed:$/) {
            at[++depth] = indent
            name[depth] = name_of($0)
            if (depth > 1) inside[outer] = inside[outer] " " name[depth]
            seen[name[depth]] = 1
            next
        }
        !depth { next }
        deep == 2 && text == "type size hasn\047t changed" { same_size[outer] = 1; next }
        deep == 2 && text == "details were reported earlier" { next }
        deep == 2 && text ~ /^[0-9]+ data member insertions?:$/ { next }
        deep == 2 && text == "there are data member changes:" { next }
        deep == 4 && text ~ /^\047.*\047, at offset [0-9]+ \(in bits\)/ {
            sub(/.*, at offset /, "")
            if (!(outer in first) || $1 + 0 < first[outer]) first[outer] = $1 + 0
            next
        }
        deep == 4 && text ~ /^type \047uint64_t\[[0-9]+\]\047 of \047.*::reserved\047 changed:$/ {
            last[outer] = "reserved"
            next
        }
        deep == 4 && text ~ /^type \047typedef .*\047 of \047.*\047 changed:$/ {
            last[outer] = "struct"
            next
        }
        deep == 4 && last[outer] == "reserved" && text ~ /^and offset changed from [0-9]+ to / {
            split(text, word, " ")
            from[outer] = word[5] + 0
            next
        }
        deep >= 6 && last[outer] == "reserved" { next } # how the reserved words have changed
        { bad[outer] = 1 }
        END {
            for (s in seen)
                if (is_good(s)) print "[suppress_type]\n  type_kind = struct\n  name = " s
        }
    ' "$1"
}

soname() { # LIBRARY
    readelf -d -W "$1" | sed -n 's/.*SONAME.*\[\(.*\)\]$/\1/p'
}

compare() { # LIBRARY HEADERS NEW_LIBRARY NEW_HEADERS
    old=$(soname "$1") new=$(soname "$3")
    if [ "$old" != "$new" ]; then
        [ "${new##*.}" -gt "${old##*.}" ] ||
            { echo "the library's name was $old, and is $new: its number only grows"; return 1; }
        echo "the library's name was $old, and is $new: programs are linked anew"
        return 0
    fi
    set -- --no-added-syms --leaf-changes-only --headers-dir1 "$2" --headers-dir2 "$4" "$1" "$3"
    abidiff "$@" >"$stage/changes" || true
    taken_from_reserved "$stage/changes" >"$stage/taken.abignore"
    sed -n 's/^  name = /fields took the place of reserved words: /p' "$stage/taken.abignore" | sort
    abidiff --suppressions "$stage/taken.abignore" "$@" >"$stage/changes" 2>&1 && return
    cat "$stage/changes"
    echo "Programs that are linked with $old may not run with this library. Take the change back," \
        "or put new fields in the place of reserved words and new functions beside old ones; or" \
        "raise WD_VERSION_MAJOR, by which all programs have to be linked anew (docs/library.md)."
    return 1
}

build() { # SOURCE BUILD_FOLDER
    cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DWD_ISAS=generic -DWD_CUDA=OFF \
        -DWD_MPI=OFF -DBUILD_TESTING=OFF >"$2.log" &&
        cmake --build "$2" --target wandistiller_shared >>"$2.log" || { cat "$2.log"; exit 1; }
}

# The newest release that has a shared library.
newest_release() {
    for tag in $(git -C "$source" tag --list 'v[0-9]*' --sort=-version:refname 2>/dev/null); do
        git -C "$source" grep -q 'add_library(wandistiller_shared' "$tag" -- cmake || continue
        echo "$tag"
        return
    done
}

source=$(cd "$(dirname "$0")/.." && pwd)
mode=${1:-}
base=$mode
[ -n "$base" ] || base=$(newest_release)
[ -n "$base" ] || skip "there is no release with a shared library yet"
command -v abidiff >/dev/null || skip "there is no abidiff: install abigail-tools"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if [ "$mode" = compare ]; then
    shift
    compare "$@"
    exit
fi
mkdir "$stage/base"
git -C "$source" archive -o "$stage/base.tar" "$base"
tar -xf "$stage/base.tar" -C "$stage/base"
build "$stage/base" "$stage/old"
build "$source" "$stage/new"
echo "$base is compared with this source"
compare "$stage/old/libwandistiller.so" "$stage/base/include" "$stage/new/libwandistiller.so" \
    "$source/include"
echo "programs that are linked with $base run with this library"
