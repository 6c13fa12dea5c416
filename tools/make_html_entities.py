#!/usr/bin/env python3
"""Writes src/io/text/html_entities.c: the character references of HTML 5, from Python's table.

    python3 tools/make_html_entities.py > src/io/text/html_entities.c
"""
from html.entities import html5

names = sorted(name[:-1] for name in html5 if name.endswith(";"))
print("""/* The named character references of HTML 5, sorted by name: see io/text/html.h.
 * Written by tools/make_html_entities.py; do not edit. */
/* clang-format off */
#include "io/text/html.h"

/* name, code points (0: only one), whether it also counts without a semicolon */
const wd_html_entity wd_html_entities[] = {""")
line = ""
for name in names:
    value = html5[name + ";"]
    assert len(value) <= 2 and len(name) <= 31 and name.isalnum() and name.isascii()
    assert html5.get(name, value) == value
    codes = [ord(c) for c in value] + [0] * (2 - len(value))
    second = hex(codes[1]) if codes[1] else "0"
    item = '{"%s", 0x%X, %s, %d},' % (name, codes[0], second, name in html5)
    if len(line) + len(item) + 5 > 100:
        print("    " + line.rstrip())
        line = ""
    line += item + " "
print("    " + line.rstrip())
print("""};
const int wd_html_entity_count = sizeof wd_html_entities / sizeof *wd_html_entities;""")
