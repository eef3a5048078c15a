#!/usr/bin/env python3
"""Files of at most 400 lines, functions of at most 60. Run by CTest; by hand: tools/check_size.py [--longest]"""
import re
import sys

import sources

FILE_LINES = 400
FUNCTION_LINES = 60

# What stands before the brace of a scope that holds functions, or of a table: not a function.
SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(inline\s+)?(export\s+)?(namespace|class|struct|union|enum|extern)\b", re.DOTALL)
TABLE = re.compile(r"=\s*[\w:<>, ]*[({\s]*$|^\s*$")
MEMBER = re.compile(r"\)\s*(noexcept\s*)?:[^:].*[\w>]\s*$", re.DOTALL)  # a constructor's member_{value}: its body comes later


def functions(text):
    """(first line, last line, head) of each outermost block that is a function."""
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match.group()),
                  sources.blank_hidden(text), flags=re.MULTILINE)
    scopes = []  # for each open brace: None for a scope, "member", or (start, head) of a function
    start = 0
    for match in re.finditer(r"[{};]|\b(public|private|protected)\s*:(?!:)", text):
        token = match.group()
        inside = any(scope is not None for scope in scopes)
        head = text[start:match.start()]
        if (scopes and scopes[-1] == "member") or (token == "{" and not inside and MEMBER.search(head)):
            scopes.append("member") if token == "{" else scopes.pop()
            continue
        if token == "{":
            is_function = inside or not (SCOPE.match(head) or TABLE.search(head))
            first = start + len(head) - len(head.lstrip())
            scopes.append((first, head) if is_function else None)
        elif token == "}" and scopes:
            scope = scopes.pop()
            if scope is not None and not any(other is not None for other in scopes):
                yield (text.count("\n", 0, scope[0]) + 1, text.count("\n", 0, match.start()) + 1,
                       " ".join(scope[1].split()))
        start = match.end()


def main():
    problems = []
    lengths = []
    paths = sources.files(".h", ".cpp")
    for path in paths:
        for first, last, head in functions(sources.read(path)):
            lengths.append((last - first + 1, f"{path}:{first}: {head[:80]}"))
    problems += [f"{place}: {length} lines; a function has at most {FUNCTION_LINES}"
                 for length, place in lengths if length > FUNCTION_LINES]
    others = sources.files(".py", ".cmake", ".txt", "")
    for path in paths + others:
        length = sources.read(path).count("\n")
        if length > FILE_LINES:
            problems.append(f"{path}: {length} lines; a file has at most {FILE_LINES}")
    if "--longest" in sys.argv:
        for length, place in sorted(lengths, reverse=True)[:20]:
            print(f"{length:4} {place}")
    return sources.report("check_size", problems, len(paths + others))


if __name__ == "__main__":
    sys.exit(main())
