"""Finds CUDA's command-line programs, for scripts that work without a toolkit by skipping."""

import os
import shutil
import sys

SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def find_tool(name):
    """Path of nvcc or nvdisasm: $MEGARTP_NVCC or $MEGARTP_NVDISASM, PATH, $CUDA_HOME, /usr/local/cuda; None when there is none."""
    chosen = os.environ.get("MEGARTP_" + name.upper())
    if chosen:
        return chosen if os.access(chosen, os.X_OK) else None
    found = shutil.which(name)
    if found:
        return found
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        path = os.path.join(home, "bin", name) if home else None
        if path and os.access(path, os.X_OK):
            return path
    return None


def need_tool(name):
    """The same, but ends the script as skipped."""
    path = find_tool(name)
    if path is None:
        print(f"skipped: there is no {name} (set MEGARTP_{name.upper()}, CUDA_HOME or PATH)", file=sys.stderr)
        sys.exit(SKIPPED)
    return path
