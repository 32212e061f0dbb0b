#!/usr/bin/env python3
"""Files stay readable: a warning above 400 lines, an error above 800; an error for a C++ function above 80 lines.

Generated files (*.gen.*) are exempt. A function is a brace block at namespace or class level whose head ends like a parameter
list; its length is counted from the line of the name to the closing brace.

usage: check_sizes.py ROOT
"""

import re
import sys

from repo_files import read_text, repo_files, report

WARN_LINES, MAX_LINES, MAX_FUNCTION_LINES = 400, 800, 80
SOURCE = re.compile(r"(\.(h|cc|cu|cuh|py|sh|cmake|js|css|html)|CMakeLists\.txt|megartp-dev)$")
CPP = re.compile(r"\.(h|cc|cu|cuh)$")
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'""", re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
LEADING = re.compile(r"(?:\s|\b(?:public|private|protected)\s*:)*")
NAME = re.compile(r"([~\w:]+|operator[^\w\s(]+)\s*\(")


def blank(text):
    """Comments, strings and preprocessor lines become spaces; line numbers stay."""
    def keep_newlines(match):
        return re.sub(r"[^\n]", " ", match[0])
    return PREPROCESSOR.sub(keep_newlines, TOKEN.sub(keep_newlines, text))


def is_function_head(head):
    """Does this text before an opening brace declare a function?"""
    if "(" not in head or head.rstrip().endswith(("=", ",", "(", "return")):
        return False
    # Templates and return types may say class or struct inside <...> only; a scope's head has its keyword outside.
    flat = head
    while True:
        shorter = re.sub(r"<[^<>]*>|\([^()]*\)", " ", flat)
        if shorter == flat:
            break
        flat = shorter
    return not SCOPE.search(flat) and not re.search(r"=\s*$", flat.split("(")[0])


def functions(text):
    """(line of the name, number of lines, name) of each function."""
    code = blank(text)
    found = []
    stack = []  # is_function for each open brace
    head_start = 0
    for match in re.finditer(r"[{};]", code):
        at, char = match.start(), match[0]
        inside = any(entry[0] for entry in stack)
        if char == ";":
            # A semicolon inside parentheses (a for statement) ends no declaration, but those occur in functions only.
            if not inside:
                head_start = at + 1
        elif char == "{":
            head = code[head_start:at]
            is_function = not inside and is_function_head(head)
            start = head_start + LEADING.match(head).end()
            stack.append((is_function, start, head))
            if not inside and not is_function:
                head_start = at + 1
        else:
            if not stack:
                continue
            is_function, start, head = stack.pop()
            if is_function:
                first, last = code.count("\n", 0, start) + 1, code.count("\n", 0, at) + 1
                name = NAME.search(head)
                found.append((first, last - first + 1, name[1] if name else "?"))
            if not any(entry[0] for entry in stack):
                head_start = at + 1
    return found


def main(root):
    problems, checked = [], 0
    for path in repo_files(root):
        if not SOURCE.search(path) or ".gen." in path:
            continue
        text = read_text(root, path)
        if text is None:
            continue
        checked += 1
        lines = text.count("\n")
        if lines > MAX_LINES:
            problems.append(f"{path}:1: {lines} lines, at most {MAX_LINES} are allowed")
        elif lines > WARN_LINES:
            print(f"{path}:1: warning: {lines} lines, aim for {WARN_LINES}", file=sys.stderr)
        if CPP.search(path):
            for line, length, name in functions(text):
                if length > MAX_FUNCTION_LINES:
                    problems.append(f"{path}:{line}: function {name} has {length} lines, at most {MAX_FUNCTION_LINES} are allowed")
    return report(problems, checked, "sizes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
