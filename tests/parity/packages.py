"""Where tests/parity/setup.sh puts the Python packages that we are compared with; tests without them are skipped."""
import importlib
import os
import sys

SKIPPED = 77
FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "perdura", "parity")


def require(name: str):
    """The module, or the end of the process as a skipped test."""
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)  # behind the Python's own: its PyTorch and NumPy come first
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        print(f"SKIPPED: no {name} in {sys.executable} ({missing}); tests/parity/setup.sh installs it")
        sys.exit(SKIPPED)
