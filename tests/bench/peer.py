"""Runs the peers' scripts in their own Python (peers/setup.sh installs it) and reads the JSON lines they print."""
import json
import os
import subprocess
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


class Peers:
    def __init__(self, folder: str | None):
        command = [f"{HERE}/peers/setup.sh", *([folder] if folder else [])]
        self.folder = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def run(self, script: str, *arguments: str) -> list[dict[str, Any]]:
        env = dict(os.environ, PYTHONPATH=f"{self.folder}/torchft", PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([f"{self.folder}/venv/bin/python", "-W", "ignore", f"{HERE}/peers/{script}", *arguments],
                              env=env, check=True, stdout=subprocess.PIPE, text=True)
        return [json.loads(line) for line in done.stdout.splitlines()]
