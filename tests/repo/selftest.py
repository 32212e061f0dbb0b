#!/usr/bin/env python3
"""Each check of this folder accepts a good tree and names the fault of a bad one."""

import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def run_check(name, files, *options):
    """Exit status and output of a check over a tree of {path: text}."""
    with tempfile.TemporaryDirectory(prefix="megartp selftest ") as root:
        for path, text in files.items():
            target = os.path.join(root, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w", encoding="utf-8") as f:
                f.write(text)
        done = subprocess.run([sys.executable, os.path.join(HERE, f"check_{name}.py"), *options, root],
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckTest(unittest.TestCase):
    def accepts(self, name, files, *options):
        status, output = run_check(name, files, *options)
        self.assertEqual(status, 0, output)
        return output

    def rejects(self, name, files, expected, *options):
        status, output = run_check(name, files, *options)
        self.assertEqual(status, 1, output)
        self.assertIn(expected, output)


class Includes(CheckTest):
    def one(self, path, include):
        return {path: f'// head\n#include <vector>\n#include "{include}"\n'}

    def test_good(self):
        for path, include in [
            ("src/plan/pack.cc", "lowering/task_graph.h"),
            ("src/ops/add/add.cc", "ops/op_family.h"),
            ("src/ops/add/add.cc", "ops/common/quant.h"),
            ("src/ops/add/add.cc", "ops/add/add_abi.h"),
            ("src/models/glm52/glm52.cc", "io/safetensors.h"),
            ("src/backends/cpu_threads/run.cc", "backends/cuda_common/x.h"),
            ("src/cli/main.cc", "ops/add/add_abi.h"),
            ("src/io/file.cc", "megartp/error.h"),
            ("include/megartp/op_graph.h", "megartp/dim.h"),
            ("src/base/math_test.cc", "cli/main.h"),
        ]:
            files = self.one(path, include)
            files["src/base/math.h"] = "#pragma once\n"
            self.accepts("includes", files)

    def test_bad(self):
        for path, include, expected in [
            ("src/base/math.cc", "plan/target.h", "src/base/math.cc:3: base must not include plan"),
            ("src/graph/g.cc", "ops/op_family.h", "graph must not include ops"),
            ("src/plan/p.cc", "launch/l.h", "plan must not include launch"),
            ("src/io/f.cc", "megartp/op_graph.h", "io must not include graph"),
            ("src/io/f.cc", "abi/instruction.h", "io must not include abi"),
            ("src/backends/b.cc", "models/glm52/glm52.h", "backends must not include models"),
            ("src/ops/add/add.cc", "ops/gemm/gemm_abi.h", "op family 'add' must not include op family 'gemm'"),
            ("src/ops/common/c.cc", "ops/gemm/gemm_abi.h", "op family 'common' must not include op family 'gemm'"),
            ("src/lowering/l.cc", "ops/gemm/gemm_abi.h", "lowering must not know the op family 'gemm'"),
            ("src/backends/cpu_threads/a.cc", "backends/cpu_reference/b.h", "backend 'cpu_threads' must not include"),
            ("src/ops/add/add.cc", "add_abi.h", "write the path from src/"),
            ("src/ops/add/add.cc", "support/op_harness.h", "neither a layer"),
            ("include/megartp/dim.h", "base/math.h", "a public header must not include"),
            ("include/megartp/error.h", "megartp/op_graph.h", "base must not include graph"),
            ("include/megartp/new.h", "megartp/dim.h", "belongs to no layer"),
            ("src/novel/x.cc", "megartp/dim.h", "layer 'novel' is unknown"),
        ]:
            self.rejects("includes", self.one(path, include), expected)
        self.rejects("includes", {"README.md": "x\n"}, "nothing to check")


class Sizes(CheckTest):
    def function(self, lines, head="int f(int a)"):
        return head + " {\n" + "  g(';');  // {\n" * (lines - 2) + "}\n"

    def test_good(self):
        self.accepts("sizes", {"src/a.cc": "namespace n {\n" + self.function(80) + self.function(80) + "}\n"})
        self.accepts("sizes", {"src/a.cc": "struct S {\n" + "  int f() { return 1; }\n" * 200 + "};\n"})
        self.accepts("sizes", {"src/a.cc": "constexpr int kTable[] = {\n" + "  1,\n" * 200 + "};\n"})
        self.accepts("sizes", {"src/a.gen.cc": "\n" * 2000, "src/b.cc": "\n"})
        self.assertIn("warning: 401 lines", self.accepts("sizes", {"src/a.cc": "\n" * 401}))
        self.accepts("sizes", {"src/a.cc": "\n" * 800})

    def test_bad(self):
        self.rejects("sizes", {"src/a.cc": "\n" * 801}, "src/a.cc:1: 801 lines")
        for head, name in [
            ("int long_one(int a)", "long_one"),
            ("template <class T>\nT long_one(T a) const", "long_one"),
            ("void Type::long_one(\n    int a)", "Type::long_one"),
            ("static inline auto long_one() -> std::vector<int>", "long_one"),
            ("TEST(Suite, Case)", "TEST"),
        ]:
            text = "namespace a {\nclass C {\n public:\n" + self.function(81, head) + "};\n}\n"
            self.rejects("sizes", {"src/a.cc": text}, f"src/a.cc:4: function {name} has")
        self.accepts("sizes", {"src/a.cc": "class C {\n" + self.function(79) + self.function(79) + "};\n"})


class Words(CheckTest):
    def test_good(self):
        self.accepts("words", {"a.md": "TO" + "DO(#12): see build/release, /t" + "mp/x, ~/wo" + "rk/ok, $HOME/x, https://x.org/home/x\n"})

    def test_bad(self):
        self.rejects("words", {"a.cc": "// ok\nopen(\"/ho" + "me/ada/x\");\n"}, "a.cc:2: path of one machine")
        self.rejects("words", {"a.cc": "see /ro" + "ot/x\n"}, "path of one machine")
        self.rejects("words", {"a.cc": "// TO" + "DO: later\n"}, "open end")
        self.rejects("words", {"a.cc": "// FIX" + "ME(ada) later\n"}, "open end")


class Docs(CheckTest):
    def setUp(self):
        self.program = os.path.join(tempfile.mkdtemp(prefix="megartp-selftest-"), "megartp")
        with open(self.program, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho \"ran $*\"\n[ \"$1\" != fail ]\n")
        os.chmod(self.program, 0o755)

    def tearDown(self):
        os.remove(self.program)
        os.rmdir(os.path.dirname(self.program))

    def run_options(self):
        return ["--run", "--megartp", self.program]

    def test_links(self):
        files = {"README.md": "# T\n[a](docs/a.md) [b](docs/a.md#two-words) [c](https://x.org) [d](#t)\n`docs/*.md` `src/NAME/x.h`\n",
                 "docs/a.md": "# A\n## Two `words`\n![p](../docs/p.svg)\n```sh\n[x](nowhere)\n```\n", "docs/p.svg": ""}
        self.accepts("docs", files, "--links-only")
        for text, expected in [
            ("[a](docs/none.md)", "README.md:1: link 'docs/none.md' leads nowhere"),
            ("[a](docs/a.md#none)", "no such heading"),
            ("[a](#none)", "no such heading"),
            ("<img src=\"none.svg\">", "leads nowhere"),
            ("see `src/none.h`", "`src/none.h` does not exist"),
            ("see `src/{none,b}.h`", "`src/none.h` does not exist"),
        ]:
            self.rejects("docs", {"README.md": text + "\n", "docs/a.md": "# A\n"}, expected, "--links-only")

    def test_commands(self):
        good = ("```sh\nbuild/release/megartp run > out.txt\n```\ntext\n```sh\ngrep -q ran out.txt\ntest -f docs/b.md\n```\n"
                "```console\n$ false\n```\n<!-- not-run: needs a network -->\n\n```sh\nfalse\n```\n")
        self.accepts("docs", {"README.md": good, "docs/b.md": "none\n", "src/c.md": "```sh\nfalse\n```\n"}, *self.run_options())
        for block, expected in [
            ("build/release/megartp fail\ntrue\n", "README.md:1: exit status 1"),
            ("build/release/megartp fail | cat\n", "exit status 1"),
            ("echo $UNSET_VARIABLE\n", "exit status"),
        ]:
            self.rejects("docs", {"README.md": f"```sh\n{block}```\n"}, expected, *self.run_options())
        self.rejects("docs", {"README.md": "no block\n"}, "no command was run", *self.run_options())
        self.rejects("docs", {"README.md": "<!-- not-run: -->\n```sh\nfalse\n```\n```sh\ntrue\n```\n"}, "needs a reason",
                     *self.run_options())


class Headers(CheckTest):
    FOO = "#pragma once\n#include <string>\nstruct Foo {\n  std::string name;\n};\n"

    def test_good(self):
        user = '#pragma once\n#include "base/foo.h"\ninline std::string name_of(const Foo& foo) { return foo.name; }\n'
        output = self.accepts("headers", {"src/base/foo.h": self.FOO, "src/plan/user.h": user})
        self.assertIn("2 in 1 compilations", output)

    def test_missing_system_header(self):
        # Also where a header that has it could stand before.
        for files in [{}, {"src/base/foo.h": self.FOO}]:
            files["src/plan/bad.h"] = "#pragma once\ninline std::string bad() { return {}; }\n"
            self.rejects("headers", files, "src/plan/bad.h: does not compile alone")

    def test_missing_header_of_ours(self):
        bad = "#pragma once\n#include <string>\ninline std::string name_of(const Foo& foo) { return foo.name; }\n"
        self.rejects("headers", {"src/base/foo.h": self.FOO, "src/plan/bad.h": bad}, "src/plan/bad.h: does not compile alone")

    def test_behind_precompiled_headers(self):
        good = {f"src/base/part{i}.h": f"#pragma once\n#include <string>\ninline std::string part{i}() {{ return {{}}; }}\n" for i in range(8)}
        self.assertIn("8 in 1 compilations behind 1 sets", self.accepts("headers", good))
        for bad in [
            "#pragma once\ninline std::string bad() { return {}; }\n",
            "#pragma once\n#include <cstdint>\ninline std::string bad() { return {}; }\n",
            "#pragma once\n#include <string>\ninline std::list<std::string> bad() { return {}; }\n",
            "#pragma once\n#ifdef NOWHERE\n#include <string>\n#endif\ninline std::string bad() { return {}; }\n",
        ]:
            self.rejects("headers", {**good, "src/plan/bad.h": bad}, "src/plan/bad.h: does not compile alone")

    def test_circle(self):
        files = {"src/base/a.h": '#pragma once\n#include "base/b.h"\n', "src/base/b.h": '#pragma once\n#include "base/a.h"\n'}
        self.accepts("headers", files)


if __name__ == "__main__":
    unittest.main()
