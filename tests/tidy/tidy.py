#!/usr/bin/env python3
"""Checks what compilers and formatters do not: who includes whom, lengths, leftovers, links of the documents.

usage: tests/tidy/tidy.py [ROOT]      prints path:line: message [rule]; exit code 1 when there is any
"""
import os
import re
import socket
import sys

from files import CPP, ROOT, project_files, read
from include_rules import check_includes

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 90
CODE = CPP + (".py", ".sh", ".cmake", ".capnp", ".txt", ".toml")
# Spelled apart: this file is checked too.
LEFTOVERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
# What the product makes for itself, /tmp/perdura-..., is no path of one machine.
MACHINE_PATHS = re.compile(r"(?<![\w./$}{~*])/(?:home|root|tmp(?!/perdura)|work|Users|var/tmp)/[\w.]")
PRIVATE_ADDRESS = re.compile(r"(?<![\d.])(10\.\d+|172\.(1[6-9]|2\d|3[01])|192\.168)\.\d+\.\d+(?![\d.])")


def check_text(name, text):
    """Rules for every text file."""
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end", "text"
    host = socket.gethostname()
    for number, line in enumerate(text.splitlines(), 1):
        if LEFTOVERS.search(line):
            yield number, "a leftover: do it, or file an issue", "leftover"
        if MACHINE_PATHS.search(line):
            yield number, "a path of one machine", "machine"
        if PRIVATE_ADDRESS.search(line):
            yield number, "an address of one network (for examples: 192.0.2.0/24)", "machine"
        if len(host) > 4 and host != "localhost" and re.search(r"\b" + re.escape(host) + r"\b", line):
            yield number, "the name of this machine", "machine"
        if line != line.rstrip():
            yield number, "white space at the end of a line", "text"


def check_code(name, text):
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield lines, f"{lines} lines, more than {FILE_LINES_MAX}: split it by what it holds", "length"
    if not name.endswith(CPP):
        return
    if name.endswith((".hpp", ".cuh")) and not re.search(r"^#pragma once$", text, re.M):
        yield 1, "a header without #pragma once", "header"
    for number, message in check_includes(name, text):
        yield number, message, "include"
    for number, length in long_functions(text):
        yield number, f"a function of {length} lines, more than {FUNCTION_LINES_MAX}", "length"


LITERAL = re.compile(
    r'R"(\w*)\((?:.|\n)*?\)\1"'                                 # raw strings
    r"|//[^\n]*|/\*(?:.|\n)*?\*/"                               # comments
    r'|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])+'"            # strings and characters
    r"|^[ \t]*#(?:\\\n|[^\n])*", re.M)                          # the preprocessor's lines


def long_functions(text):
    """Yields (first line, lines) of functions that are too long. Braces are counted; no C++ is parsed."""
    code = LITERAL.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), re.sub(r"(?<=\d)'(?=\d)", " ", text))
    depth, start, function_depth, head = 0, 0, None, 0
    for at, letter in enumerate(code):
        if letter == "{":
            opening = code[head:at]
            is_type = re.search(r"\b(namespace|class|struct|union|enum)\b[^()]*$", opening)
            if function_depth is None and "(" in opening and not is_type:
                function_depth, start = depth, head + len(opening) - len(opening.lstrip())
            depth += 1
        elif letter == "}":
            depth -= 1
            if function_depth is not None and depth <= function_depth:
                function_depth = None
                length = code.count("\n", start, at) + 1
                if length > FUNCTION_LINES_MAX:
                    yield code.count("\n", 0, start) + 1, length
        if letter in "{};" and function_depth is None:
            head = at + 1


LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED_PATH = re.compile(r"`([\w.-]+/[\w./-]+)`")


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text):
    return {slug(re.sub(r"[`*]", "", match)) for match in re.findall(r"^#+\s+(.*)$", text, re.M)}


def check_document(root, name, text, folders):
    """Links lead to files and headings that exist, and so do quoted paths that begin with one of our folders."""
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.exists(os.path.join(root, file)):
                yield number, f"a link to {target}, which does not exist", "link"
            elif anchor and file.endswith(".md") and anchor not in anchors(read(root, file)):
                yield number, f"a link to {target}: no such heading", "link"
        for path in QUOTED_PATH.findall(line):
            if path.split("/")[0] in folders and not os.path.exists(os.path.join(root, path)):
                yield number, f"names {path}, which does not exist", "link"


def check_tree(root):
    names = project_files(root)
    folders = {name.split("/")[0] for name in names if "/" in name}
    for name in names:
        text = read(root, name)
        if text is None:
            continue
        for number, message, rule in check_text(name, text):
            yield f"{name}:{number}: {message} [{rule}]"
        if name.endswith(CODE):
            for number, message, rule in check_code(name, text):
                yield f"{name}:{number}: {message} [{rule}]"
        if name.endswith(".md"):
            for number, message, rule in check_document(root, name, text, folders):
                yield f"{name}:{number}: {message} [{rule}]"


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["--help"], ["-h"]):
        print(__doc__.strip())
        return 0
    root = sys.argv[1] if len(sys.argv) == 2 else ROOT
    found = list(check_tree(root))
    for line in found:
        print(line)
    print(f"tidy: {len(project_files(root))} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
