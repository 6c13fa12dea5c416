#!/bin/sh
# Checks that no two headers define the same name that begins with wd_ or WD_: a type, a function, a
# variable, a constant of an enum, or a macro in capitals. It does not see names that a macro makes
# of a list (WD_##name). Two headers that define one name could not be included together, or would
# give it two meanings. Several headers may declare a struct that one of them defines (typedef
# struct wd_x wd_x;).
# Checks also that names that begin with wd__ are used in no other room than the one whose header
# declares them; tests may use them. A room is a folder; dev/cpu and dev/cpu/isa are one, and so are
# dev/cuda and dev/cuda/kernels.
# Usage: tools/check_names.sh [source folder]
# It relies on the layout of .clang-format: what begins in the first column is at file level.
set -eu
cd "${1:-$(dirname "$0")/..}"
find src include bench -name '*.h' -o -name '*.cuh' | sort | awk '
function define(name) {
    if (name in where && where[name] == header) return
    if (name in where) { print header ": " name " is also defined by " where[name]; bad++ }
    where[name] = header
    names++
}
# Defines the name in `text` that `pattern` finds; `pattern` may match more than the name.
function define_match(text, pattern) {
    if (!match(text, pattern)) return 0
    text = substr(text, RSTART, RLENGTH)
    match(text, /wd_[a-z0-9_]+|WD_[A-Za-z0-9_]+/)
    define(substr(text, RSTART, RLENGTH))
    return 1
}
function define_constants(text,    item, n, i) {
    sub(/^.*[{]/, "", text)
    sub(/[}].*/, "", text)
    n = split(text, item, ",")
    for (i = 1; i <= n; i++) define_match(item[i] " ", "^ *WD_[A-Za-z0-9_]+ ")
}
function read_line(line) {
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
    sub(/^WD_API /, "", line)
    if (define_match(line, "^ *# *define +WD_[A-Za-z0-9_]+")) return
    if (line ~ /^(typedef )?enum.*[{]/) in_enum = 1
    if (in_enum) define_constants(line)
    if (line ~ /^[^ ].*[}]|^[}]/) in_enum = 0
    if (line !~ /^[a-z}]/) return
    if (define_match(line, "[}] wd_[a-z0-9_]+( __attribute__.*)?;")) return
    if (line ~ /^(struct|union|enum) wd_[a-z0-9_]+ [{]/) define_match(line, "wd_[a-z0-9_]+ [{]")
    else if (line ~ /^typedef (struct|union) wd_[a-z0-9_]+ wd_[a-z0-9_]+;/) return
    else if (!define_match(line, "(^|[ *])wd_[a-z0-9_]+[(]|[(][*]wd_[a-z0-9_]+[)]"))
        define_match(line, "wd_[a-z0-9_]+([[]| =|;)")
}
{
    header = $0
    headers++
    in_enum = 0
    while ((getline line < header) > 0) read_line(line)
    close(header)
}
END {
    if (names < 1000) { print names " names: the headers were not found"; exit 1 }
    printf "%d headers, %d names, %d defined twice\n", headers, names, bad
    exit bad > 0
}'

find src bench \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) \
    ! -name '*_test.c' ! -name '*_fuzz.c' | sort | awk '
function room_of(path) {
    sub(/^src\//, "", path)
    sub(/\/[^\/]*$/, "", path)
    sub(/^dev\/cpu\/isa$/, "dev/cpu", path)
    sub(/^dev\/cuda\/kernels$/, "dev/cuda", path)
    return path
}
# All names of the file that begin with wd__, but for comments; those of headers are declared
# there.
function read_file(file,    line, name, key) {
    while ((getline line < file) > 0) {
        if (line ~ /^ *(\/\*|\*)/) continue
        while (match(line, /(^|[^A-Za-z0-9_])wd__[A-Za-z0-9_]+/)) {
            name = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            sub(/^[^w]/, "", name)
            if (file ~ /\.h$/ && !(name in room)) { room[name] = room_of(file); names++ }
            key = name " " file
            if (!(key in used)) { used[key] = name; at[key] = file }
        }
    }
    close(file)
}
{ read_file($0) }
END {
    for (key in used) {
        if (room_of(at[key]) == room[used[key]]) continue
        print at[key] ": " used[key] " is private to " room[used[key]]
        bad++
    }
    if (names < 100) { print names " private names: the sources were not found"; exit 1 }
    printf "%d private names, %d uses elsewhere\n", names, bad
    exit bad > 0
}'
