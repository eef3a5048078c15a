#!/usr/bin/env python3
"""`lockstep report` from outside: its pages are well-formed and need nothing else, its errors name the file.

    LAUNCHER_TEST_COMMAND=build/lockstep cli/report/report_test.py -v"""
import html.parser
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

LOCKSTEP = str(pathlib.Path(os.environ["LAUNCHER_TEST_COMMAND"]).resolve())
HOSTILE = "</svg><script>alert(\"1\" + '&')</script>"
BASE = 1_800_000_000_000_000_000


class Page(html.parser.HTMLParser):
    """Every element that is open, and what would load something."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loads, self.problems = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [name for name, value in attributes if name in ("src", "href", "style") or name.startswith("on")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [name for name, value in attributes if name in ("src", "href", "style") or name.startswith("on")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"</{tag}> at {self.getpos()}")


def trace(rank, steps):
    """`steps` steps of 10 ms on each rank: 4 of forward, 5 of backward, in which a bucket of 3 ms begins; rank 1 comes 0.5 ms later."""
    events = []

    def put(category, name, start, length, **args):
        events.append({"ph": "X", "cat": category, "name": name, "ts": start * 1e3, "dur": length * 1e3, "args": args})

    for step in range(steps):
        at = 10 * step
        put("user_annotation", "step", at, 10)
        put("cpu_op", HOSTILE, at, 4)
        put("cpu_op", "backward", at + 4, 4, **{"Fwd thread id": 1})
        put("lockstep", "lockstep:all_reduce", at + 6 + rank / 2, 3, group=HOSTILE, rank=rank, sequence=step + 1, bytes=4000,
            purpose="gradients")
    return {"schemaVersion": 1, "distributedInfo": {"backend": "shm", "rank": rank, "world_size": 2},
            "baseTimeNanoseconds": BASE, "traceEvents": events}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *arguments):
        return subprocess.run([LOCKSTEP, "report", *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, check=False)

    def page(self, *arguments):
        result = self.report(*arguments)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return (self.folder / "report.html").read_text(encoding="utf-8")

    def check_page(self, text):
        page = Page(text)
        self.assertEqual((page.problems, page.open, page.loads), ([], [], []))
        self.assertNotIn("script", page.tags)
        drawings = re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)
        for drawing in drawings:
            xml.etree.ElementTree.fromstring(drawing)
            for number in re.findall(r"(?:nan|inf)\b", re.sub(r"<title>.*?</title>|<text.*?</text>|aria-label=\"[^\"]*\"", "", drawing)):
                self.fail(f"{number} in {drawing}")
        return drawings

    def test_everything(self):
        run = self.folder / "run"
        (run / "traces").mkdir(parents=True)
        with open(run / "run.jsonl", "w", encoding="utf-8") as file:
            for step in range(200):
                value = "NaN" if step == 150 else 2.0 / (step + 1)
                file.write(json.dumps({"step": step, "train_loss": value, HOSTILE: step, "flat": 3}) + "\n")
            file.write(json.dumps({"device": HOSTILE}) + "\n")
        (run / "test.csv").write_text("step,test_loss\n0,1e308\n100,-1e308\n")
        for rank in range(2):
            (run / "traces" / f"rank{rank}.json").write_text(json.dumps(trace(rank, 4)))
        text = self.page("run")
        self.assertEqual(len(self.check_page(text)), 6, "three curves' charts, two of steps, one timeline")
        self.assertIn("<title>rank 0, backward: 4.00 ms</title>", text)
        self.assertIn("<title>rank 0, exposed communication: 1.00 ms</title>", text)  # 8 to 9
        self.assertIn("<title>rank 1, exposed communication: 1.50 ms</title>", text)  # 8 to 9.5
        self.assertIn("<title>rank 1, rest: 0.500 ms</title>", text)
        self.assertIn('<td class="n">1</td><td class="n">4 of 4</td><td class="n">0.500</td><td class="n">0.500</td>', text)
        self.assertIn("came last, 0.500 ms behind the first", text)

    def test_only_metrics(self):
        (self.folder / "run.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n')
        text = self.page("run.jsonl")
        self.assertEqual(len(self.check_page(text)), 1)
        self.assertIn("No profiler traces: step times need", text)

    def test_the_page_has_the_name_that_was_asked_for(self):
        (self.folder / "run.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n')
        result = self.report("run.jsonl", "-o", "page.html")
        self.assertEqual(result.stdout, "page.html: 1 metrics files, 0 profiler traces, 0 flight-recorder files\n")
        self.assertTrue((self.folder / "page.html").exists())
        self.assertFalse((self.folder / "report.html").exists())

    def refused(self, code, words, *arguments):
        result = self.report(*arguments)
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertIn(words, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertFalse((self.folder / "report.html").exists())

    def test_broken_files_are_named(self):
        whole = json.dumps(trace(0, 2))
        for name, text in {"run.jsonl": '{"a": 1}\n{"a": ', "run.csv": 'a,b\n1,"2\n', "trace.json": whole[:-40],
                           "rank0.json": '{"lockstep_trace": 1, "ranks": [{}]}'}.items():
            with self.subTest(name=name):
                (self.folder / name).write_text(text)
                self.refused(1, name, ".")
                self.refused(1, name, name)
                (self.folder / name).unlink()

    def test_what_cannot_be_reported(self):
        self.refused(1, "none", "none")
        (self.folder / "empty").mkdir()
        self.refused(1, "no metrics file", "empty")
        (self.folder / "run.jsonl").write_text('{"epoch": 1}\n')
        self.refused(1, "/nonexistent", "run.jsonl", "-o", "/nonexistent/page.html")
        self.refused(64, "RUN is required")

    def test_help(self):
        result = self.report("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("--output", result.stdout)


if __name__ == "__main__":
    unittest.main()
