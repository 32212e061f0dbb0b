#!/usr/bin/env python3
"""Text that must not be in the repository: paths of somebody's machine, and open ends that name no issue.

usage: check_words.py ROOT
"""

import re
import sys

from repo_files import read_text, repo_files, report

# Written so that this file does not match itself.
RULES = [
    (re.compile(r"(?<![\w.$}~])/(?:" + "|".join(["home", "Users", "root", "work", "workspace", "mnt"]) + r")/\w"),
     "path of one machine"),
    (re.compile(r"\b[A-Z]:\\Users\\"), "path of one machine"),
    (re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b(?!\(#\d+\))"),
     "open end without an issue number; write it as NAME(#12)"),
]


def main(root):
    problems, checked = [], 0
    for path in repo_files(root):
        text = read_text(root, path)
        if text is None:
            continue
        checked += 1
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in RULES:
                found = pattern.search(line)
                if found:
                    problems.append(f"{path}:{number}: {what}: '{found[0]}'")
    return report(problems, checked, "words")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
