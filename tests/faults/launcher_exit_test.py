"""How a job ends: exit codes, the rank that is named, how fast the others stop, what is written down."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

from launcher_support import BOUND, LOCKSTEP, SHAPES, Job, LauncherTest, seeded, show_times, wait_until


def run(options, command, **keywords):
    """Exit code, standard output and error of a job, after checking that nothing of it lives."""
    with Job(options, command, **keywords) as job:
        code = job.wait()
        assert job.living() == [], job.living()
        return code, job.out(), job.err()


def by_rank(**scripts):
    """A program in which rank R runs scripts["rR"], and the others scripts["others"]."""
    cases = " ".join(f"{name[1:]}) {text} ;;" for name, text in scripts.items() if name != "others")
    return ["sh", "-c", f"case $RANK in {cases} *) {scripts.get('others', 'true')} ;; esac"]


class ExitCodes(LauncherTest):
    def test_zero_when_every_rank_returns_zero(self):
        code, out, err = run(["-n", "3"], ["sh", "-c", "echo $RANK of $WORLD_SIZE"])
        self.assertEqual((code, sorted(out.splitlines())), (0, ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]))
        self.assertNotIn("failed", err)

    def test_the_first_failing_ranks_code(self):
        for code in (1, 3, 64, 70, 255):
            with self.subTest(code=code):
                result, _, err = run(["-n", "2"], by_rank(r1=f"exit {code}", others="{sleep}"))
                self.assertEqual(result, code)
                self.assertIn(f"rank 1 of 2 failed first: exit code {code}", err)

    def test_128_plus_the_signal(self):
        for name in ("KILL", "SEGV", "ABRT", "TERM"):
            with self.subTest(signal=name):
                result, _, err = run(["-n", "2"], by_rank(r0=f"kill -{name} $$", others="{sleep}"))
                self.assertEqual(result, 128 + getattr(signal, f"SIG{name}"))
                self.assertIn(f"rank 0 of 2 failed first: killed by SIG{name}", err)

    def test_a_launcher_whose_parent_ignores_sigchld_still_sees_exit_codes(self):
        ignore = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.assertEqual(run(["-n", "2"], by_rank(r1="exit 3", others="{sleep}"), preexec_fn=ignore)[0], 3)

    def test_usage_errors_are_64_and_say_what_was_meant(self):
        for arguments, words in [
            (["--nproc-per-nod", "3", "./x"], "did you mean --nproc-per-node?"),
            (["-n", "0", "./x"], "must be a number from 1"),
            (["-n", "two", "./x"], 'not "two"'),
            (["-n"], "needs a value"),
            (["-n", "2"], "a program to run is needed"),
            (["--", "--nproc_per_node", "2", "./x"], "did you mean --nproc-per-node?"),
            (["--", "-program"], "did you mean ./-program?"),
            (["--no-prefix=1", "./x"], "takes no value"),
            (["--grace", "soon", "./x"], "--grace"),
        ]:
            with self.subTest(arguments=arguments):
                result = subprocess.run([LOCKSTEP, "run", *arguments], capture_output=True, text=True, check=False)
                self.assertEqual(result.returncode, 64, result.stderr)
                self.assertIn(words, result.stderr)

    def test_dashes_and_underscores_are_the_same(self):
        for option in (["--nproc_per_node", "2"], ["--nproc_per_node=2"], ["--nproc-per-node=2"], ["-n2"], ["-n", "2"]):
            with self.subTest(option=option):
                self.assertEqual(len(run([*option, "--no_logs"], ["echo", "x"])[1].splitlines()), 2)

    def test_the_programs_arguments_are_its_own(self):
        for options in (["-n", "1", "--no-prefix"], ["-n", "1", "--no-prefix", "--"]):
            with self.subTest(options=options):
                arguments = ["--help", "-n", "9", "--", "a b", "", "$HOME", "*", "tab\there"]
                _, out, _ = run(options, ["printf", "<%s>\\n", *arguments])
                self.assertEqual(out.splitlines(), [f"<{argument}>" for argument in arguments])

    def test_a_missing_program_is_127_and_one_that_cannot_run_126(self):
        with Job(["-n", "1"], ["true"]) as job:
            job.wait()
            for name, text, mode in (("plain", "x", 0o644), ("script", "#!/no/such/shell\n", 0o755), ("noline", "x", 0o755)):
                (job.folder / name).write_text(text)
                (job.folder / name).chmod(mode)
            for program, code, words in [
                ("no-such-program", 127, 'no program "no-such-program" on PATH'),
                ("./no-such-program", 127, 'no program "./no-such-program"'),
                ("plain", 127, "did you mean ./plain?"),
                ("./plain", 126, "chmod +x"),
                ("/", 126, "is a folder"),
                ("./script", 127, "#! line"),
                ("./noline", 126, "a first line like #!/bin/sh"),
            ]:
                with self.subTest(program=program):
                    result = subprocess.run([LOCKSTEP, "run", "-n", "2", program], cwd=job.folder, capture_output=True,
                                            text=True, check=False)
                    self.assertEqual(result.returncode, code, result.stderr)
                    self.assertIn(words, result.stderr)


class FirstFailure(LauncherTest):
    def test_is_named_last_and_once_with_its_last_lines(self):
        lines = "; ".join(f"echo line {i}" for i in range(30))
        _, _, err = run(["-n", "3"], by_rank(r2=f"{lines}; echo last words >&2; exit 9", others="{sleep}"))
        summary = err[err.index("lockstep: rank 2 of 3 failed first"):].splitlines()
        self.assertRegex(summary[0], r"^lockstep: rank 2 of 3 failed first: exit code 9, pid \d+ on \S+, after \d+\.\d s$")
        kept = [line for line in summary if line.startswith("lockstep:   [2] ")]
        self.assertEqual(len(kept), 20)
        self.assertIn("lockstep:   [2] line 29", kept)
        self.assertIn("lockstep:   [2] last words", kept)
        self.assertIn("lockstep: because of it: rank 0 stopped, rank 1 stopped", summary)
        self.assertEqual(err.count("failed first"), 1)

    def test_a_rank_that_prints_nothing_is_said_to_have_printed_nothing(self):
        self.assertIn("it printed nothing", run(["-n", "1"], ["sh", "-c", "exit 1"])[2])

    def test_is_recorded_as_json(self):
        with Job(["-n", "3"], by_rank(r1="echo why; kill -SEGV $$", others="{sleep}")) as job:
            job.wait()
            record = json.loads((job.logs() / "failure.json").read_text())
        self.assertEqual((record["exit_code"], record["first_failing_rank"]), (139, 1))
        self.assertEqual([rank["role"] for rank in record["ranks"]], ["stopped", "cause", "stopped"])
        self.assertEqual(record["ranks"][1]["signal"], "SIGSEGV")
        self.assertEqual(record["ranks"][1]["last_lines"], ["why"])
        self.assertEqual(record["command"][:2], ["sh", "-c"])

    def test_a_job_that_succeeds_leaves_no_record(self):
        with Job(["-n", "2"], ["true"]) as job:
            job.wait()
            self.assertEqual(sorted(os.listdir(job.logs())), ["rank0.log", "rank1.log"])

    def test_stops_every_other_rank_within_a_second(self):
        times = []
        for seed, rng in seeded(20):
            ranks = rng.randint(2, 4)
            failing = rng.randrange(ranks)
            shape = rng.choice(list(SHAPES))
            end = rng.choice(["exit 3", "kill -KILL $$", "kill -SEGV $$"])
            script = f"sleep 0.1; date +%s.%N; {end}"
            with self.subTest(seed=seed, ranks=ranks, failing=failing, shape=shape, end=end):
                with Job(["-n", str(ranks)], by_rank(**{f"r{failing}": script}, others=SHAPES[shape])) as job:
                    job.wait()
                    times.append(time.time() - float(re.search(r"\[\d\] (\d+\.\d+)", job.out()).group(1)))
                    self.assertEqual(job.living(), [])
                    self.assertIn(f"rank {failing} of {ranks} failed first", job.err())
                    self.assertLess(times[-1], BOUND)
        show_times("one rank fails, until the launcher has returned", times)

    def test_of_ranks_that_fail_one_after_the_other_is_the_first(self):
        # A rank waits until the one before it is gone: not even a zombie, so the launcher has seen its end.
        after = "while [ ! -s pid{0} ]; do sleep 0.01; done; while kill -0 $(cat pid{0}) 2>/dev/null; do sleep 0.01; done; "
        for seed, rng in seeded(20):
            order = rng.sample(range(4), 4)
            scripts = {f"r{order[0]}": f"echo $$ > pid{order[0]}; exit {10 + order[0]}"}
            for before, rank in zip(order, order[1:]):
                scripts[f"r{rank}"] = f"echo $$ > pid{rank}; {after.format(before)} exit {10 + rank}"
            with self.subTest(seed=seed, order=order):
                self.assertEqual(run(["-n", "4", "--no-logs"], by_rank(**scripts))[0], 10 + order[0])


class NormalEnd(LauncherTest):
    def test_kills_what_the_ranks_left_behind_and_says_so(self):
        for shape in ("daemon", "session"):
            with self.subTest(shape=shape):
                code, _, err = run(["-n", "2"], ["sh", "-c", "setsid {sleep} >/dev/null 2>&1 & exit 0"])
                self.assertEqual(code, 0)
                self.assertRegex(err, r"left processes behind, which were killed: \w+ \(pid \d+\), \w+ \(pid \d+\)")

    def test_waits_for_the_last_rank(self):
        code, out, _ = run(["-n", "2"], by_rank(r0="true", others="sleep 0.3; echo late"))
        self.assertEqual((code, out), (0, "[1] late\n"))

    def test_leaves_other_children_of_the_shell_alone(self):
        other = subprocess.Popen(["sleep", "100"])
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        run(["-n", "2"], by_rank(r0="exit 1", others="{sleep}"))
        self.assertIsNone(other.poll())

    def test_opens_no_listening_socket(self):
        with Job(["-n", "3"], ["sh", "-c", "{sleep} & wait"]) as job:
            wait_until(lambda: len(job.sleepers()) == 3, "ranks run")
            inodes = {link for pid in job.living() for link in links_of(pid)}
            listening = {f"socket:[{row.split()[9]}]" for name in ("tcp", "tcp6") for row in rows(name) if row.split()[3] == "0A"}
            listening |= {f"socket:[{row.split()[6]}]" for row in rows("unix") if int(row.split()[3], 16) & 0x10000}
            self.assertEqual(inodes & listening, set())


def rows(name):
    with open(f"/proc/net/{name}", encoding="ascii", errors="replace") as table:
        return table.readlines()[1:]


def links_of(pid):
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            pass


if __name__ == "__main__":
    unittest.main()
