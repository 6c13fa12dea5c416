#!/bin/sh
# Checks that every #include of a folder's sources is one that the table of docs/design.md allows,
# that no row of the table names a folder of a later row, and that files of teacher and train do not
# include one another in a circle, where x.c, x.h and x_impl.h count as one file.
# Usage: tools/check_modules.sh [source folder]
# A test may include more; every folder may include the public headers. A header outside api and cli
# includes wandistiller_status.h at most, since a new option would rebuild whatever includes it.
set -eu
cd "${1:-$(dirname "$0")/..}"
find src bench -name '*.[ch]' ! -name '*_test.c' ! -name '*_fuzz.c' \
    -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' | sort | awk '
# A row of the table: "| folder, folder | what it is | folders it may include |". The folders of a
# row may include one another. "io/*" means all folders of io, "all above" those of all earlier
# rows.
function learn(line,    cell, folders, n, i, allowed, words, w, j, k) {
    split(line, cell, "|")
    gsub(/`/, "", cell[2])
    gsub(/`/, "", cell[4])
    n = split(cell[2], folders, /[ ,]+/)
    allowed = " "
    if (cell[4] ~ /all above/) for (k in row_of) allowed = allowed k " "
    else if (cell[4] !~ /nothing|public/) {
        w = split(cell[4], words, /[ ,]+/)
        for (j = 1; j <= w; j++) {
            if (words[j] == "") continue
            if (words[j] in row_of) { allowed = allowed words[j] " "; continue }
            found = 0
            if (words[j] ~ /\/\*$/)
                for (k in row_of)
                    if (index(k, substr(words[j], 1, length(words[j]) - 1)) == 1) {
                        allowed = allowed k " "
                        found = 1
                    }
            if (!found)
                fail("docs/design.md: no row above that of" cell[2] "has " words[j])
        }
    }
    rows++
    for (i = 1; i <= n; i++) if (folders[i] != "") allowed = allowed folders[i] " "
    for (i = 1; i <= n; i++) if (folders[i] != "") {
        may[folders[i]] = allowed
        row_of[folders[i]] = rows
    }
}
function fail(text) { print text; bad++ }
# Returns "teacher/run" for "src/teacher/run/sweep.c" and for "teacher/run/sweep.h".
function folder(path) {
    sub(/^src\//, "", path)
    if (path !~ /\//) return ""
    sub(/\/[^\/]*$/, "", path)
    return path
}
# Returns "train/network/params" for "src/train/network/params_impl.h", and "" for a file of other
# folders.
function stem(path) {
    sub(/^src\//, "", path)
    if (path !~ /^(teacher|train)\//) return ""
    sub(/(_impl)?\.(cuh?|[ch])$/, "", path)
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
        if (line ~ /^\| folder \| what it is \| may include \|/) inside = 1
        else if (inside && line !~ /^\|/) inside = 0
        else if (inside && line !~ /^\|-/) learn(line)
    }
    if (rows < 25) { print "docs/design.md: the table of folders was not found"; exit 1 }
}
{
    file = $0
    from = folder(file)
    files++
    if (from == "bench" || from in may) seen[from] = 1
    else fail(file ": the table of docs/design.md has no folder \"" from "\"")
    number = 0
    while ((getline line < file) > 0) {
        number++
        if (line !~ /^[ \t]*#[ \t]*include[ \t]*"/) continue
        split(line, quoted, "\"")
        if (quoted[2] == "wandistiller.h" && from !~ /^(api|cli)/ && file ~ /\.h$/)
            fail(file ":" number ": include wandistiller_status.h instead: " from \
                 " declares nothing of options and jobs")
        if (quoted[2] !~ /\//) continue
        # on the host the stand-in runs what CUDA C does not have there
        if (file == "src/dev/cuda/kernels/thread.cuh" && quoted[2] == "standin/inside.h") continue
        edges++
        from_stem = stem(file)
        to_stem = stem(quoted[2])
        if (from_stem != "" && to_stem != "" && from_stem != to_stem)
            include[from_stem " " to_stem] = 1
        if (index(may[from], " " folder(quoted[2]) " ")) continue
        fail(file ":" number ": " from " must not include \"" quoted[2] "\"")
    }
    close(file)
}
END {
    if (rows < 25) exit 1
    if (files < 10) fail("no sources found")
    for (k in may) if (!(k in seen)) fail("docs/design.md: there is no folder " k)
    find_circles()
    printf "%d files, %d includes, %d not allowed\n", files, edges, bad
    exit bad > 0
}'
