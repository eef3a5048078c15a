#!/usr/bin/env python3
"""No product code decides by English text: texts are for people, and what programs tell each other is an enum or a number. Run by
CTest; by hand: tools/check_texts.py

Found are comparisons with, and searches for, a literal of more than one word, and both on the text of an exception. Texts that come from
outside (a kernel file, a library that has no codes) are in FOREIGN, with the reason."""
import re
import sys

import check_layers
import sources

# file: why it reads words
FOREIGN = {
    "lockstep/comm/backends/gloo/stream_break.h": "Gloo's exceptions have no code",
    "lockstep/launch/last_lines.h": "what a program printed: the frames of libtorch's backtraces are left out of its last lines",
    "lockstep/comm/meeting/job_identity.cpp": "'by hand', which another rank said, reads without a preposition",
}
PHRASE = r'"[^"\n]*[A-Za-z][^"\n]* [^"\n]*\w[^"\n]*"|"[^"\n]*[A-Za-z]{2}[^"\n]* "|" [^"\n]*[A-Za-z]{2}[^"\n]*"'
CALLS = r"\b(?:find|rfind|find_first_of|starts_with|ends_with|contains|compare)\(\s*"
RULES = [
    ("compares with a text", re.compile(rf"(?:==|!=)\s*(?:{PHRASE})|(?:{PHRASE})\s*(?:==|!=)")),
    ("searches for a text", re.compile(rf"{CALLS}(?:{PHRASE})")),
    ("decides by an exception's text", re.compile(rf"what\(\)\s*(?:==|!=)|\b(?:what(?:\(\))?|reason|sentence)\.{CALLS}|\bstrstr\(")),
]
CONSTANT = re.compile(rf"\b([A-Za-z_]\w*)(?:\[\])?\s*(?:=|\{{)\s*(?:{PHRASE})")
KNOWN = re.compile(rf"for \([^)]*\b(\w+) : \{{\s*(?:{PHRASE})")


def without_comments(text):
    """Comments blanked, literals kept; line numbers stay."""
    keep = re.compile(r'(//[^\n]*|/\*.*?\*/)|("(?:\\.|[^"\\\n])*")', re.DOTALL)
    return keep.sub(lambda match: match.group(2) or re.sub(r"[^\n]", " ", match.group(1)), text)


def problems_of(path, text):
    text = without_comments(text)
    names = "|".join({*CONSTANT.findall(text), *KNOWN.findall(text)} - {"text", "what"})
    rules = RULES + [("compares with a text", re.compile(rf"(?:==|!=)\s*(?:{names})\b(?![.(])|{CALLS}(?:{names})\b(?![.(])"))] if names else RULES
    for what, pattern in rules:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what} ({match.group().strip()}): let an enum travel instead"


def main():
    paths = [path for path in sources.files(".h", ".cpp")
             if path.parts[0] in ("lockstep", "cli") and not check_layers.is_test(path)]
    problems = []
    for path in paths:
        if str(path) not in FOREIGN:
            problems += problems_of(path, sources.read(path))
    problems += [f"{name}: it is in FOREIGN and compares no text" for name in FOREIGN
                 if not any(problems_of(name, sources.read(name)))]
    return sources.report("check_texts", problems, len(paths))


if __name__ == "__main__":
    sys.exit(main())
