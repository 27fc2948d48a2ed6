"""Benchmarks that are one C++ program: run it, show what it prints, keep that as JSON."""
import argparse
import re
import subprocess

from cluster import Failed
from report import Report, build_text

FIGURE = re.compile(r"^([\w.]+): ([-\d.e+]+)")


class Program:
    def __init__(self, program: str, doc: str):
        self.program, self.__doc__ = program, doc
        self.targets = [program]

    def add_options(self, p: argparse.ArgumentParser) -> None:
        p.add_argument("arguments", nargs="*", help="for the program")

    def run(self, args: argparse.Namespace) -> None:
        report = Report(args.name, build=build_text(args.programs))
        command = [f"{args.programs}/{self.program}", *args.arguments]
        lines = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout or ():
                print(line, end="", flush=True)
                lines.append(line.rstrip("\n"))
        if running.returncode != 0:
            raise Failed(f"{self.program} ended with {running.returncode}")
        report.keep(lines=lines, figures={m[1]: {"value": float(m[2])} for m in map(FIGURE.match, lines) if m})
        report.write()
