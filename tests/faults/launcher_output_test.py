"""What ranks print: whole lines with their names, nothing lost, nothing forged, nothing that can hold the launcher up."""
import itertools
import os
import pathlib
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from launcher_support import BOUND, LOCKSTEP, Job, LauncherTest, read, show_times, wait_until
from launcher_terminal import Terminal, screen_of

PRINTF = ["-n", "1", "--no-logs"]


def output_of(text, options=(), **keywords):
    """(standard output, standard error) of one rank that prints `text` with printf(1)."""
    with Job([*PRINTF, *options], ["printf", "%b", text], **keywords) as job:
        job.wait()
        return (job.folder / "out").read_bytes(), (job.folder / "err").read_bytes()


class Lines(LauncherTest):
    def test_start_with_the_rank_and_never_mix(self):
        count = 20000
        with Job(["-n", "4"], ["sh", "-c", f"seq -f \"$RANK line %.0f\" {count}"]) as job:
            job.wait()
            lines = job.out().splitlines()
            for rank in range(4):
                own = [line for line in lines if line.startswith(f"[{rank}] ")]
                self.assertEqual(own, [f"[{rank}] {rank} line {i}" for i in range(1, count + 1)])
            self.assertEqual(len(lines), 4 * count)

    def test_come_whole_although_they_were_written_in_pieces(self):
        script = "for i in 1 2 3; do printf \"a$RANK\"; sleep 0.02; printf 'b\\n'; done; printf end"
        with Job(["-n", "3"], ["sh", "-c", script]) as job:
            job.wait()
            expected = [line for rank in range(3) for line in [f"[{rank}] a{rank}b"] * 3 + [f"[{rank}] end"]]
            self.assertEqual(sorted(job.out().splitlines()), sorted(expected))

    def test_of_standard_error_stay_on_standard_error(self):
        with Job(["-n", "2"], ["sh", "-c", "echo out; echo err >&2"]) as job:
            job.wait()
            self.assertEqual(sorted(job.out().splitlines()), ["[0] out", "[1] out"])
            self.assertEqual(sorted(line for line in job.err().splitlines() if line.startswith("[")), ["[0] err", "[1] err"])

    def test_have_no_prefix_when_none_is_wanted(self):
        self.assertEqual(output_of("plain\\n", ["--no-prefix"])[0], b"plain\n")

    def test_of_a_killed_rank_are_all_there(self):
        with Job(["-n", "2"], ["sh", "-c", "seq 5000; [ $RANK = 1 ] && kill -KILL $$; sleep 1000"]) as job:
            self.assertEqual(job.wait(), 137)
            self.assertEqual([line for line in job.out().splitlines() if line.startswith("[1]")],
                             [f"[1] {i}" for i in range(1, 5001)])

    def test_of_a_line_without_end_are_cut_so_that_memory_is_bounded(self):
        with Job(PRINTF, ["sh", "-c", "head -c 5000000 /dev/zero | tr '\\0' x"]) as job:
            job.wait()
            lines = job.out().splitlines()
            self.assertEqual(sum(line.count("x") for line in lines), 5000000)
            self.assertLessEqual(max(map(len, lines)), (1 << 20) + 4)


class Forging(LauncherTest):
    """Whatever a rank prints, only the launcher's own lines start with "lockstep: "."""

    def test_new_lines_get_the_prefix_too(self):
        self.assertEqual(output_of("x\\nlockstep: rank 1 failed\\n")[0], b"[0] x\n[0] lockstep: rank 1 failed\n")

    def test_a_carriage_return_is_followed_by_the_prefix(self):
        self.assertEqual(output_of("x\\rlockstep: rank 1 failed\\n")[0], b"[0] x\r[0] lockstep: rank 1 failed\n")

    def test_control_characters_are_spelled_out(self):
        for text, shown in [
            ("\\033[2J", b"\\x1b[2J"),            # clears the screen
            ("\\033[1A", b"\\x1b[1A"),            # goes up a line
            ("\\033]0;title\\007", b"\\x1b]0;title\\x07"),
            ("\\v\\f\\b", b"\\x0b\\x0c\\x08"),
            ("\\302\\233 2J", b"\\xc2\\x9b 2J"),  # U+009B: an escape sequence in one character
            ("\\377\\376", b"\\xff\\xfe"),        # no UTF-8
            ("\\177", b"\\x7f"),
        ]:
            with self.subTest(text=text):
                self.assertEqual(output_of(text + "\\n")[0], b"[0] " + shown + b"\n")

    def test_tabs_colours_and_letters_of_the_world_pass(self):
        self.assertEqual(output_of("a\\tb \\303\\244\\342\\202\\254\\n")[0], "[0] a\tb ä€\n".encode())
        self.assertEqual(output_of("\\033[1;31mred\\n")[0], b"[0] \x1b[1;31mred\x1b[0m\n", "and end with the line")

    def test_the_summary_of_a_failure_is_no_way_around(self):
        with Job(PRINTF, ["sh", "-c", "printf 'x\\033[2J\\rlockstep: all is well\\n'; exit 1"]) as job:
            job.wait()
            self.assertIn("lockstep:   [0] lockstep: all is well\n", job.err())
            self.assertNotIn("\x1b", job.err())


class OnATerminal(LauncherTest):
    def test_a_progress_line_is_drawn_in_place_and_gives_way_to_other_lines(self):
        script = ("if [ $RANK = 0 ]; then printf 'step 1\\r'; printf 'step 2\\r'; until [ -e {0}/0 ]; do sleep 0.01; done; "
                  "printf 'step 3\\r\\n'; else until [ -e {0}/1 ]; do sleep 0.01; done; echo a line; fi")
        with tempfile.TemporaryDirectory() as marks, Terminal(["-n", "2"], ["sh", "-c", script.format(marks)]) as terminal:
            terminal.wait_for("[0] step 2")
            pathlib.Path(marks, "1").touch()
            terminal.wait_for("[0] step 2\r\x1b[K[1] a line\r\n[0] step 2")
            pathlib.Path(marks, "0").touch()
            self.assertEqual(terminal.wait(), 0)
            self.assertEqual(screen_of(terminal.text)[-2:], ["[1] a line", "[0] step 3"])

    def test_a_question_is_shown_before_its_line_ends(self):
        with Terminal(["-n", "1"], ["sh", "-c", "printf 'name? '; read name; echo hello $name"]) as terminal:
            terminal.wait_for("[0] name? ")
            terminal.type(b"you\n")
            self.assertEqual(terminal.wait(), 0)
            self.assertIn("hello you", terminal.text)

    def test_rank_0_alone_is_told_the_width(self):
        with Terminal(["-n", "2"], ["sh", "-c", "echo width ${LOCKSTEP_TERMINAL-none}"]) as terminal:
            self.assertEqual(terminal.wait(), 0)
            self.assertRegex(terminal.text, r"\[0\] width [1-9]\d+\r\n")
            self.assertIn("[1] width none\r\n", terminal.text)

    def test_without_one_nobody_is_told_a_width(self):
        with Job(["-n", "2"], ["sh", "-c", "echo width ${LOCKSTEP_TERMINAL-none}"],
                 environment={"LOCKSTEP_TERMINAL": "80"}) as job:
            job.wait()
            self.assertEqual(sorted(job.out().splitlines()), ["[0] width none", "[1] width none"])


class Readers(LauncherTest):
    def test_that_stop_reading_do_not_hold_up_the_stop(self):
        times = []
        for number, waits in itertools.product((signal.SIGTERM, signal.SIGINT), (False, True)):
            read_end, write_end = os.pipe()
            with self.subTest(signal=number, waits=waits), Job(["-n", "2"], ["yes"], stdout=write_end) as job:
                os.close(write_end)
                # Nobody reads: the pipe fills, then the launcher's own buffer, then the ranks' pipes, and the ranks wait.
                wait_until(lambda: cpu_ticks(job) == (time.sleep(0.2), cpu_ticks(job))[1], "everybody waits")
                start = time.monotonic()
                os.kill(job.pid, number)
                wait_until(lambda: "stopping: every rank got" in job.err(), "the first is seen; sooner, two may count as one")
                if waits:  # then the launcher waits for its reader, else for the ranks
                    wait_until(lambda: not [pid for pid in job.living() if read(f"/proc/{pid}/comm") == b"yes\n"], "the ranks have ended")
                os.kill(job.pid, number)  # the second: what is not read yet is given up
                self.assertEqual(job.wait(), 128 + number)
                times.append(time.monotonic() - start)
                self.assertEqual(job.living(), [])
                self.assertLess(times[-1], BOUND)
            os.close(read_end)
        show_times("output that nobody reads, until a stopped launcher has returned", times)

    def test_that_read_slowly_get_everything(self):
        with Job(["-n", "2", "--no-prefix"], ["seq", "400000"], stdout=subprocess.PIPE) as job:
            time.sleep(0.3)
            lines = job.process.stdout.read().split()
            job.process.stdout.close()
            self.assertEqual(job.wait(), 0)
            self.assertEqual(len(lines), 800000)

    def test_that_go_away_end_the_job(self):
        with Job(["-n", "2"], ["yes"], stdout=subprocess.PIPE) as job:
            job.process.stdout.readline()
            job.process.stdout.close()
            self.assertEqual(job.wait(), 128 + signal.SIGPIPE)
            self.assertEqual(job.living(), [])


def cpu_ticks(job):
    total = 0
    for pid in job.living():
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            total += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    return total


class Logs(LauncherTest):
    def test_hold_both_streams_as_they_came_byte_for_byte(self):
        shows = "until grep -q {} $LOCKSTEP_LOG_DIR/rank$RANK.log; do sleep 0.01; done; "
        script = ("printf 'one\\n'; " + shows.format("one") + "printf 'two\\033[2J\\377\\n' >&2; " + shows.format("two") +
                  "printf 'three without end'")
        with Job(["-n", "2"], ["sh", "-c", script]) as job:
            job.wait()
            for rank in (0, 1):
                self.assertEqual((job.logs() / f"rank{rank}.log").read_bytes(), b"one\ntwo\x1b[2J\xff\nthree without end")
            self.assertIn(str(job.logs()), job.err(), "the launcher says where they are")

    def test_are_the_users_alone_whatever_the_umask(self):
        with Job(["-n", "2", "--log-dir", "deep/er"], ["sh", "-c", "echo $LOCKSTEP_LOG_DIR; exit 1"],
                 preexec_fn=lambda: os.umask(0)) as job:
            job.wait()
            run = next((job.folder / "deep" / "er").iterdir())
            self.assertIn(f"[0] {run}", job.out())
            for folder in (job.folder / "deep", job.folder / "deep" / "er", run):
                self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)
            self.assertEqual({file.name for file in run.iterdir()}, {"rank0.log", "rank1.log", "failure.json"})
            for file in run.iterdir():
                self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)

    def test_of_two_runs_never_meet(self):
        with Job(["-n", "1"], ["true"]) as job:
            job.wait()
            subprocess.run([LOCKSTEP, "run", "true"], cwd=job.folder, capture_output=True, check=True)
            self.assertEqual(len(list((job.folder / "runs").iterdir())), 2)

    def test_that_cannot_be_made_are_done_without_unless_asked_for(self):
        with Job(["-n", "1"], ["true"]) as job:
            job.wait()
            (job.folder / "file").write_text("x")
            for options, code in ((["--log-dir", "file/logs"], 70), ([], 0)):
                if not options:
                    subprocess.run(["rm", "-r", job.folder / "runs"], check=True)
                    (job.folder / "runs").write_text("in the way")
                result = subprocess.run([LOCKSTEP, "run", *options, "echo", "ran"], cwd=job.folder, capture_output=True,
                                        text=True, check=False)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual("no log files" in result.stderr, code == 0)
                self.assertEqual(result.stdout, "" if code else "[0] ran\n")


if __name__ == "__main__":
    unittest.main()
