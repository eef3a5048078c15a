#!/usr/bin/env python3
"""`lockstep plan` from outside: the ZeRO paper's table, models in files, what fits, groups of ranks, schedules, errors in one line.

    LAUNCHER_TEST_COMMAND=build/lockstep cli/plan/plan_test.py -v"""
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
LOCKSTEP = str(pathlib.Path(os.environ["LAUNCHER_TEST_COMMAND"]).resolve())
TRANSFORMER = ["--layers", 24, "--hidden", 1024, "--heads", 16, "--sequence", 1024]


def write_model(path, tensors):
    """A safetensors file of `tensors`: name, number of float32 elements."""
    header, offset = {}, 0
    for name, elements in tensors:
        header[name] = {"dtype": "F32", "shape": [elements], "data_offsets": [offset, offset + 4 * elements]}
        offset += 4 * elements
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


class Plan(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_plan(self, *arguments):
        return subprocess.run([LOCKSTEP, "plan", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, check=False)

    def text(self, *arguments, code=0):
        result = self.run_plan(*arguments)
        self.assertEqual((result.returncode, result.stderr), (code, ""))
        return result.stdout

    def rows(self, *arguments, code=0):
        """By form and stage."""
        plan = json.loads(self.text(*arguments, "--json", code=code))
        return {(row["form"], row["stage"]): row for row in plan["rows"]}

    def test_the_papers_table(self):
        lines = self.text("--params", "7.5B", "--ranks", 64, "--form", "private").splitlines()
        totals = [line.split()[-4:-2] for line in lines if line.startswith(("ddp", "stage"))]
        self.assertEqual(totals, [["120", "GB"], ["31.4", "GB"], ["16.6", "GB"], ["1.88", "GB"]])

    def test_a_model_in_a_file(self):
        write_model(self.folder / "model.safetensors", [("fc.weight", 3000), ("fc.bias", 30), ("head", 970)])
        self.assertIn('live: the largest layer, "fc", of 3.03 K parameters\n', self.text("--model", "model.safetensors", "--ranks", 4))
        arguments = ["--model", "model.safetensors", "--ranks", 4, "--precision", "fp32", "--optimizer", "sgd"]
        rows = self.rows(*arguments)
        self.assertEqual(rows["private", 0]["total"], 8 * 4000)
        self.assertEqual(rows["private", 3]["total"], 8 * 4000 // 4 + 8 * 3030)
        self.assertEqual(rows["shared", 3]["total"], 8 * 4000 // 4 + 4 * 3030)
        self.assertEqual(self.rows(*arguments, "--live", "1k")["private", 3]["live"], 8 * 1000)

    def test_a_model_in_two_files(self):
        write_model(self.folder / "one.safetensors", [("a", 10)])
        write_model(self.folder / "two.safetensors", [("b", 20)])
        (self.folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}))
        self.assertIn("30 parameters,", self.text("--model", "model.safetensors.index.json", "--ranks", 1))

    def test_what_fits(self):
        model = ["--params", "7.5B", "--ranks", 64]
        self.assertIn("80.0 GB, own memory: stage 1 is the first that fits\n", self.text(*model, "--memory", "80GB"))
        self.assertTrue(self.text(*model, "--memory", "1GB", code=1).endswith("stage 3 does from 128 ranks on\n"))
        self.text(*model, "--memory", "20GB", "--stage", 1, "--form", "private", code=1)
        self.text(*model, "--memory", "20GB", "--stage", 1, "--form", "shared")

    def test_machines(self):
        for arguments in [["--nodes", 3, "--ranks-per-node", 4], ["--ranks", 12, "--nodes", 3], ["--ranks", 12, "--ranks-per-node", 4],
                          ["--ranks", 12, "--nodes", 3, "--ranks-per-node", 4]]:
            with self.subTest(arguments=arguments):
                self.assertIn("12 ranks on 3 machines\n", self.text("--params", "1M", *arguments))
        self.assertIn("4 ranks on 1 machine\n", self.text("--params", "1M", "--ranks-per-node", 4))

    def test_activations(self):
        model = ["--params", "350M", "--ranks", 8, *TRANSFORMER, "--micro-batch", 4]
        tokens = 4 * 1024
        layer = 34 * tokens * 1024 + 5 * 16 * 1024 * tokens
        self.assertEqual(self.rows(*model)["private", 0]["activations"], 24 * layer)
        self.assertEqual(self.rows(*model, "--recompute", "full")["private", 3]["activations"], 24 * 2 * tokens * 1024 + layer)
        self.assertEqual(self.rows(*model, "--vocabulary", 50257)["shared", 1]["activations"],
                         24 * layer + 5 * tokens * 1024 + 4 * tokens * 50257)
        self.assertIn("; the table has none\n", self.text(*model))

    def refused(self, code, words, *arguments):
        result = self.run_plan(*arguments)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_mistakes_are_named(self):
        model = ["--params", "7.5B", "--ranks", 64]
        self.refused(64, "--params or --model", "--ranks", 64)
        self.refused(64, "--params or --model", *model, "--model", "a.safetensors")
        self.refused(64, "--ranks, or --nodes and --ranks-per-node", "--params", "7.5B", "--nodes", 2)
        self.refused(64, "--params takes a number such as", "--params", "7.5G", "--ranks", 64)
        self.refused(64, "--memory takes a number of bytes with its unit", *model, "--memory", "80")
        self.refused(64, "--ranks 64 is not --nodes times", *model, "--nodes", 3)
        self.refused(64, "--ranks 64 is not --nodes times", *model, "--nodes", 128)
        self.refused(64, "--ranks 64 is not --nodes times", *model, "--ranks-per-node", 7)
        self.refused(64, "not in range", "--params", "7.5B", "--ranks", 0)
        self.refused(64, "did you mean adamw?", *model, "--optimizer", "adanw")
        self.refused(64, "fp32, bf16, fp16, not \"fp64\"", *model, "--precision", "fp64")
        self.refused(64, "--stage is one of ddp, 0, 1, 2, 3", *model, "--stage", 4)
        self.refused(64, "did you mean shared?", *model, "--form", "share")
        self.refused(64, "need --hidden, --heads, --sequence too", *model, "--layers", 24)
        self.refused(64, "need --layers, --hidden, --heads, --sequence too", *model, "--recompute", "full")
        self.refused(64, "did you mean selective?", *model, *TRANSFORMER, "--recompute", "selectiv")
        self.refused(64, "cannot be more than all", *model, "--live", "8B")
        self.refused(64, "did you mean --optimizer?", *model, "--optimiser", "adam")

    def test_broken_models_are_named(self):
        self.refused(1, "none.safetensors", "--model", "none.safetensors", "--ranks", 1)
        (self.folder / "broken.safetensors").write_bytes(b"x")
        self.refused(1, "broken.safetensors", "--model", "broken.safetensors", "--ranks", 1)
        (self.folder / "index.json").write_text("{}")
        self.refused(1, "index.json", "--model", "index.json", "--ranks", 1)

    def test_pages_show_what_the_command_prints(self):
        for page, blocks in [("plan.md", 2), ("pipeline_schedules.md", 6)]:
            shown = [block for block in (DOCS / page).read_text().split("```\n")[1::2] if block.startswith("$ lockstep plan ")]
            found = 0
            for block in shown:
                command, text = block.split("\n", 1)
                if text:
                    self.assertEqual(self.text(*command.split()[3:]), text, command)
                    found += 1
            self.assertEqual(found, blocks, page)

    def test_groups_of_ranks(self):
        text = self.text("--mesh", "tp=2,pp=4", "--ranks", 16)
        self.assertIn("16 ranks: pp 4 x dp 2 x cp 1 x tp 2\n", text)
        self.assertIn("\npp          {0,4,8,12} {1,5,9,13} {2,6,10,14} {3,7,11,15}\n", text)
        mesh = json.loads(self.text("--mesh", "tp=2,pp=2", "--nodes", 2, "--ranks-per-node", 4, "--order", "tp-pp-dp", "--json"))
        self.assertEqual(mesh["groups"]["pp"], [[0, 2], [1, 3], [4, 6], [5, 7]])
        self.refused(64, "needs --ranks", "--mesh", "tp=2")
        self.refused(64, "which does not divide the 8 ranks of the job", "--mesh", "tp=3", "--ranks", 8)
        self.refused(64, "has tp twice", "--mesh", "tp=2", "--ranks", 8, "--order", "tp-tp")
        self.refused(64, "--params does not go with --mesh", "--mesh", "tp=2", "--ranks", 8, "--params", "1M")
        self.refused(64, "--mesh prints at most 65536 ranks", "--mesh", "tp=2", "--ranks", 1 << 20)
        self.refused(64, "--order needs --mesh", "--params", "1M", "--ranks", 8, "--order", "tp-dp-pp")

    def test_schedules(self):
        shape = ["--stages", 4, "--micro-batches", 8]
        for name, bubble in [("gpipe", "27.3 %"), ("1f1b", "27.3 %"), ("zb-h1", "11.1 %"), ("zb-v", "5.9 %")]:
            self.assertIn(f", bubble {bubble}\n", self.text("--pipeline", name, *shape))
        plan = json.loads(self.text("--pipeline", "1f1b", *shape, "--virtual", 2, "--times", "2,3,1", "--json"))
        self.assertAlmostEqual(plan["bubble"], 3 / (2 * 8 + 3))
        self.assertEqual(plan["time"], (2 * 8 + 3) * 6 / 2)
        self.text("--pipeline", "1f1b", *shape, "--recompute", "always", "--batch", 9, "--transfer", 0.1)
        self.refused(64, "needs --stages and --micro-batches", "--pipeline", "1f1b")
        self.refused(64, "--stages needs --pipeline", *shape, "--params", "1M", "--ranks", 8)
        self.refused(64, "--ranks does not go with --pipeline", "--pipeline", "1f1b", *shape, "--ranks", 8)
        self.refused(64, "virtual stages are for 1f1b", "--pipeline", "gpipe", *shape, "--virtual", 2)
        self.refused(64, "did you mean 1f1b?", "--pipeline", "1f1f", *shape)

    def test_a_picture_of_a_schedule(self):
        self.text("--pipeline", "zb-h1", "--stages", 3, "--micro-batches", 4, "--svg", "zb.svg")
        root = xml.etree.ElementTree.parse(self.folder / "zb.svg").getroot()
        self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
        boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if box.get("class") in ("f", "i", "w") and len(box)]
        self.assertEqual(len(boxes), (1 + 3 + 3) * 4)  # the first stage's backward is whole, a box of class b
        self.refused(1, "none/zb.svg", "--pipeline", "1f1b", "--stages", 3, "--micro-batches", 4, "--svg", "none/zb.svg")

    def test_help(self):
        self.assertIn("--ranks-per-node", self.text("--help"))
        overview = subprocess.run([LOCKSTEP, "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("lockstep plan --help", overview)
        close = subprocess.run([LOCKSTEP, "plam"], capture_output=True, text=True, check=False)
        self.assertEqual((close.returncode, close.stderr), (64, 'lockstep: there is no command plam; did you mean plan?\n'))


if __name__ == "__main__":
    unittest.main()
