#!/usr/bin/env python3
"""Each rule catches a sample that breaks it, and lets pass one that does not."""
import os
import tempfile
import unittest

import tidy
from include_rules import check_includes

HEADER = "#pragma once\n"


def includes(name, *lines):
    return [message for _, message in check_includes(name, "".join(f"#include {line}\n" for line in lines))]


class IncludeRules(unittest.TestCase):
    def test_forbidden_includes_are_found(self):
        for name, line in [
            ("actors/base/x.hpp", "<caf/all.hpp>"),
            ("actors/base/x.hpp", '"actors/wire/types.hpp"'),
            ("coordinator/logic/x.cpp", '"coordinator/durable_log.hpp"'),
            ("coordinator/logic/x.cpp", "<caf/actor.hpp>"),
            ("coordinator/main.cpp", '"worker/logic/step.hpp"'),
            ("coordinator/main.cpp", "<capnp/ez-rpc.h>"),
            ("coordinator/main.cpp", '"coordinator/admin/admin.capnp.h"'),
            ("worker/main.cpp", "<torch/torch.h>"),
            ("worker/worker_actor.cpp", '"coordinator/logic/planner.hpp"'),
            ("worker/trainer/x.cpp", '"actors/wire/types.hpp"'),
            ("serving/main.cpp", '"worker/logic/step.hpp"'),
            ("storage/store.cpp", '"actors/runtime/harden.hpp"'),
            ("kernels/adamw.cpp", "<torch/torch.h>"),
            ("kernels/adamw.cu", "<caf/all.hpp>"),
            ("worker/main.cpp", '"chaos/proc/cluster.hpp"'),
            ("chaos/sim/world.hpp", '"actors/transport/link.hpp"'),
            ("storage/store.cpp", "<newlibrary/x.h>"),
            ("elsewhere/x.cpp", "<vector>"),
        ]:
            self.assertEqual(len(includes(name, line)), 1, f"{name} may not include {line}")

    def test_allowed_includes_pass(self):
        for name, line in [
            ("actors/base/x.hpp", "<vector>"),
            ("actors/wire/x.hpp", "<caf/all.hpp>"),
            ("coordinator/admin/server.cpp", '"coordinator/admin/admin.capnp.h"'),
            ("coordinator/console/client.cpp", "<kj/async.h>"),
            ("worker/model/dit.cpp", "<torch/torch.h>"),
            ("kernels/binding.cpp", "<ATen/ATen.h>"),
            ("chaos/proc/process.cpp", "<sys/wait.h>"),
            ("tests/unit/x_test.cpp", '"worker/logic/step.hpp"'),
        ]:
            self.assertEqual(includes(name, line), [], f"{name} may include {line}")


class Files(unittest.TestCase):
    def findings(self, name, text):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return list(tidy.check_tree(root))

    def assert_finds(self, rule, name, text):
        found = self.findings(name, text)
        self.assertTrue(any(f"[{rule}]" in line for line in found), f"{rule} not among {found}")

    def test_a_clean_file_passes(self):
        self.assertEqual(self.findings("actors/base/x.hpp", HEADER + "inline int f() { return 1; }\n"), [])

    def test_a_header_without_pragma_once_is_found(self):
        self.assert_finds("header", "actors/base/x.hpp", "int f();\n")

    def test_long_files_and_functions_are_found(self):
        self.assert_finds("length", "actors/base/x.hpp", HEADER + "\n" * 601)
        body = "  g();\n" * 95
        self.assert_finds("length", "actors/base/x.cpp", "namespace a {\nstruct s {\n void f() {\n" + body + "}\n};\n}\n")

    def test_a_long_namespace_or_class_is_no_function(self):
        lines = "void g(int);\n" * 95
        self.assertEqual(self.findings("actors/base/x.cpp", "namespace a {\n" + lines + "}\n"), [])
        self.assertEqual(self.findings("actors/base/x.cpp", "struct a {\n" + lines + "};\n"), [])

    def test_braces_in_literals_and_comments_do_not_count(self):
        one = "void f() {\n  // {\n  auto a = \"{\"; auto b = '{'; auto c = 1'000;\n}\n"
        self.assertEqual(self.findings("actors/base/x.cpp", one * 40), [])

    def test_leftovers_are_found(self):
        self.assert_finds("leftover", "actors/base/x.cpp", "// TO" + "DO: later\n")

    def test_paths_names_and_addresses_of_a_machine_are_found(self):
        for text in ["/ho" + "me/me/x", "/t" + "mp/x", "192.1" + "68.1.2"]:
            self.assert_finds("machine", "docs/x.md", f"see {text}\n")

    def test_broken_links_are_found(self):
        self.assert_finds("link", "docs/x.md", "[a](missing.md)\n")
        self.assert_finds("link", "docs/x.md", "# One\n[a](#two)\n")
        self.assert_finds("link", "docs/x.md", "`docs/missing.md`\n")
        self.assertEqual(self.findings("docs/x.md", "# One `b`\n[a](#one-b) [c](x.md) `docs/x.md`\n"), [])


if __name__ == "__main__":
    unittest.main()
