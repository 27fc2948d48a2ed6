#!/usr/bin/env python3
"""clang-tidy 14 on the code that decides: base and the logic folders. Clean results are remembered by content.

usage: tests/tidy/clang_tidy.py BUILD_FOLDER      the folder that holds compile_commands.json
"""
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys

from files import ROOT, cpp_files, read

FOLDERS = ("actors/base/", "coordinator/logic/", "worker/logic/", "serving/logic/", "chaos/sim/", "chaos/proc/")


def closure(name, seen):
    """The file and every file of ours that it includes."""
    if name in seen or not os.path.isfile(os.path.join(ROOT, name)):
        return seen
    seen.add(name)
    for included in re.findall(r'^\s*#\s*include\s*"([^"]+)"', read(ROOT, name) or "", re.M):
        closure(included, seen)
    return seen


def content_key(name, tool_version):
    key = hashlib.sha256(tool_version)
    for part in [".clang-tidy", *sorted(closure(name, set()))]:
        with open(os.path.join(ROOT, part), "rb") as file:
            key.update(part.encode() + b"\0" + file.read() + b"\0")
    return key.hexdigest()


def check(tool, build, cache, name, version):
    clean = os.path.join(cache, content_key(name, version))
    if os.path.exists(clean):
        return name, 0, ""
    # The compile commands are g++'s.
    command = [tool, "--quiet", "--extra-arg=-Wno-unknown-warning-option", "-p", build, name]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if run.returncode == 0:
        open(clean, "w").close()
    return name, run.returncode, run.stdout


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip())
        return 2
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        print("clang-tidy is missing: configs/install-deps --dev")
        return 1
    build = os.path.abspath(sys.argv[1])
    cache = os.path.join(build, "clang-tidy")
    os.makedirs(cache, exist_ok=True)
    version = subprocess.run([tool, "--version"], capture_output=True).stdout
    names = [name for name in cpp_files() if name.endswith(".cpp") and name.startswith(FOLDERS)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, code, output in pool.map(lambda n: check(tool, build, cache, n, version), names):
            if code != 0:
                failed += 1
                print(f"{name}:\n{output}")
    print(f"clang-tidy: {len(names)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
