"""The project's files: what git tracks or would track, without a repository all but build folders."""
import os
import subprocess

CPP = (".cpp", ".hpp", ".cu", ".cuh")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOT_OURS = {"build", "out", ".git", ".cache", "__pycache__"}


def project_files(root=ROOT):
    """Sorted paths relative to root."""
    command = ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z", "-co", "--exclude-standard", "--", "."]
    listed = subprocess.run(command, capture_output=True) if os.path.exists(os.path.join(root, ".git")) else None
    if listed is not None and listed.returncode == 0:
        names = [name for name in listed.stdout.decode().split("\0") if name]
    else:
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in NOT_OURS]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(name for name in set(names) if os.path.isfile(os.path.join(root, name)))


def cpp_files(root=ROOT):
    return [name for name in project_files(root) if name.endswith(CPP)]


def read(root, name):
    """The file's text, or None when it is not text."""
    with open(os.path.join(root, name), "rb") as file:
        data = file.read()
    if b"\0" in data:
        return None
    return data.decode("utf-8", errors="replace")
