#!/bin/sh
# Checks that every #include of a module's sources is one that the table of docs/design.md allows,
# and that files of teacher, student and distill do not include one another in a circle, where x.c,
# x.h and x_impl.h count as one file.
# Usage: tools/check_modules.sh [source folder]
# A test may include more; every module may include the public headers. A header outside api and cli
# includes wandistiller_status.h at most, since a new option would rebuild whatever includes it.
set -eu
cd "${1:-$(dirname "$0")/..}"
find src bench -name '*.[ch]' ! -name '*_test.c' ! -name '*_fuzz.c' ! -name '*_harness.h' \
    -o -name '*.cc' | sort | awk '
# The table: rows "| module, module | what it may include |".
function learn(line,    cell, modules, n, i, allowed, words, w, j, from) {
    split(line, cell, "|")
    n = split(cell[2], modules, /[ ,]+/)
    allowed = ""
    if (cell[3] ~ /all above/) allowed = above
    else if (cell[3] !~ /nothing|public headers only/) {
        w = split(cell[3], words, /[ ,]+/)
        for (j = 1; j <= w; j++) if (words[j] in known) {
            allowed = allowed " " words[j]
            if (cell[3] ~ /what it includes/) allowed = allowed " " known[words[j]]
        }
    }
    for (i = 1; i <= n; i++) if (modules[i] != "") { known[modules[i]] = allowed; rows++ }
    for (i = 1; i <= n; i++) if (modules[i] != "") above = above " " modules[i]
}
function fail(text) { print text; bad++ }
# Returns "student/params" for "src/student/params_impl.h", and "" for a file of other modules.
function stem(path) {
    sub(/^src\//, "", path)
    if (path !~ /^(teacher|student|distill)\//) return ""
    sub(/(_impl)?\.[ch]$/, "", path)
    return path
}
# Removes edges from files that nothing includes, and to files that include nothing, until only
# circles are left.
function find_circles(    edge, ends, taken, includes, included) {
    do {
        taken = 0
        split("", includes)
        split("", included)
        for (edge in include) { split(edge, ends, " "); includes[ends[1]]++; included[ends[2]]++ }
        for (edge in include) {
            split(edge, ends, " ")
            if (!includes[ends[2]] || !included[ends[1]]) { delete include[edge]; taken++ }
        }
    } while (taken)
    for (edge in include) { sub(/ /, " includes ", edge); fail("in a circle: " edge) }
}
BEGIN {
    while ((getline line < "docs/design.md") > 0) {
        if (line ~ /^\| module \| may include \|/) inside = 1
        else if (inside && line !~ /^\|/) inside = 0
        else if (inside && line !~ /^\|-/) learn(line)
    }
    if (rows < 10) { print "docs/design.md: the table of modules was not found"; exit 1 }
}
{
    file = $0
    split(file, part, "/")
    module = part[1] == "src" ? part[2] : part[1]
    files++
    if (!(module in known)) fail(file ": module \"" module "\" is not in the table")
    number = 0
    while ((getline line < file) > 0) {
        number++
        if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
        split(line, quoted, "\"")
        edges++
        from_stem = stem(file)
        to_stem = stem(quoted[2])
        if (from_stem != "" && to_stem != "" && from_stem != to_stem)
            include[from_stem " " to_stem] = 1
        if (quoted[2] == "wandistiller_status.h") continue
        if (quoted[2] == "wandistiller.h") {
            if (module !~ /^(api|cli)$/ && file ~ /\.h$/)
                fail(file ":" number ": include wandistiller_status.h instead: " module \
                     " declares nothing of options and jobs")
            continue
        }
        split(quoted[2], to, "/")
        if (to[1] == module || index(" " known[module] " ", " " to[1] " ")) continue
        fail(file ":" number ": " module " must not include \"" quoted[2] "\"")
    }
    close(file)
}
END {
    if (rows < 10) exit 1
    if (files < 10) fail("no sources found")
    find_circles()
    printf "%d files, %d includes, %d not allowed\n", files, edges, bad
    exit bad > 0
}'
