#!/bin/sh
# What tools/check_abi.sh allows and refuses: small libraries are compared, made of a header and of
# that header with one change each. Ends with 77, which CTest takes for "skipped", without abidiff.
# Usage: tests/abi.sh SOURCE_FOLDER C_COMPILER
set -eu
source=$1 compiler=$2
command -v abidiff >/dev/null || {
    echo "not tested here: checks/abi_rules: there is no abidiff: install abigail-tools"
    exit 77
}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cat >"$stage/sample.h" <<'H'
#include <stdint.h>
typedef enum wd_s_status { WD_S_OK, WD_S_BAD } wd_s_status;
typedef struct wd_s_options {
    const char *path;
    int64_t steps;
    double lr;
    uint64_t reserved[6];
} wd_s_options;
typedef struct wd_s_job { wd_s_options run; int64_t kind; } wd_s_job;
typedef struct wd_s_result { int64_t steps; double loss; } wd_s_result;
wd_s_status wd_s_run(wd_s_result *out, const wd_s_options *options);
int wd_s_more(const wd_s_options *options);
int wd_s_plan(const wd_s_job *job);
H
cat >"$stage/sample.c" <<'C'
#include "sample.h"
wd_s_status wd_s_run(wd_s_result *out, const wd_s_options *options) { return !out || !options; }
int wd_s_more(const wd_s_options *options) { return !options; }
int wd_s_plan(const wd_s_job *job) { return !job; }
C
make_library() { # FOLDER SED_SCRIPT [NUMBER]
    mkdir -p "$stage/$1"
    for file in sample.h sample.c; do sed -e "$2" "$stage/$file" >"$stage/$1/$file"; done
    (cd "$stage/$1" && $compiler -g -shared -fPIC sample.c -o sample.so \
        -Wl,-soname,libsample.so."${3:-0}")
}
failed=0
expect() { # allowed|refused WHAT SED_SCRIPT [NUMBER]
    make_library new "$3" "${4:-0}"
    found=allowed
    sh "$source/tools/check_abi.sh" compare "$stage/old/sample.so" "$stage/old" \
        "$stage/new/sample.so" "$stage/new" >"$stage/log" 2>&1 || found=refused
    [ "$found" = "$1" ] && return
    echo "$2: expected that it is $1, found that it is $found:"
    cat "$stage/log"
    failed=1
}
make_library old ''
word='uint64_t reserved\[6\]'
expect allowed "nothing" ''
expect allowed "a new function" 's/^int wd_s_more.*;$/&\nint wd_s_new(void);/
    s/^int wd_s_more.*}$/&\nint wd_s_new(void) { return 0; }/'
expect allowed "a new value of an enum at its end" 's/WD_S_BAD/WD_S_BAD, WD_S_WORSE/'
expect allowed "a field in the place of a word" "s/$word/const char *name; uint64_t reserved[5]/"
expect allowed "two fields" "s/$word/double a; int64_t b; uint64_t reserved[4]/"
expect refused "a function less" '/wd_s_more/d'
expect refused "another parameter" 's/wd_s_more(/wd_s_more(int first, /'
expect refused "another result" 's/^int wd_s_more/double wd_s_more/'
expect refused "another type of a field" 's/double lr/int64_t lr/'
expect refused "that and a field in the place of a word" \
    "s/double lr/int64_t lr/; s/$word/int64_t a; uint64_t reserved[5]/"
expect refused "two fields that have changed places" \
    's/int64_t steps;$/double rate;/; s/double lr/int64_t steps/'
expect refused "a field before others" \
    "s/double lr/int64_t a; double lr/; s/$word/uint64_t reserved[5]/"
expect refused "a field and no word less" "s/$word/int64_t a; $word/"
expect refused "a field and no word less, in a struct with room" \
    "s/$word/int64_t a; $word/; s/; int64_t kind;/;/"
expect refused "a field in the place of a word, and another struct that has changed" \
    "s/$word/int64_t a; uint64_t reserved[5]/; s/int64_t kind/double kind/"
expect refused "fewer words" "s/$word/uint64_t reserved[5]/"
expect refused "a struct without words that has grown" 's/double loss;/double loss, more;/'
expect refused "other values of an enum" 's/WD_S_BAD/WD_S_NEW, WD_S_BAD/'
expect allowed "a raised number of the library" 's/double lr/int64_t lr/; /wd_s_more/d' 1
[ "$failed" -eq 0 ] && echo "all changes were judged as expected"
exit $failed
