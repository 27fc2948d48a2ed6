#!/usr/bin/env python3
"""clang-format 14 agrees with every C++ file. usage: tests/tidy/format.py [--fix]"""
import re
import shutil
import subprocess
import sys

from files import ROOT, cpp_files


def main():
    tool = shutil.which("clang-format-14") or shutil.which("clang-format")
    if tool is None:
        print("clang-format is missing: configs/install-deps --dev")
        return 1
    if sys.argv[1:] == ["--fix"]:
        return subprocess.run([tool, "-i", *cpp_files()], cwd=ROOT).returncode
    checked = subprocess.run([tool, "--dry-run", "-Werror", *cpp_files()], cwd=ROOT, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^([^\s:]+):\d+:\d+: error", checked.stderr, re.M)))
    for name in wrong:
        print(f"{name}: not formatted [format]")
    print(f"format: {len(cpp_files())} files, {len(wrong)} to format (tests/tidy/format.py --fix)")
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
