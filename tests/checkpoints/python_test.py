"""Python reads a checkpoint of three ranks with the function of docs/checkpoints.md, and xxh128 is what the index
says it is; the command converts it for torch.load and safetensors."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]
TRIAL = os.environ["CHECKPOINT_TEST_SAVE"]
SHAPES = [(), (1,), (0,), (41,), (3, 0, 2), (9, 4), (2, 3, 4, 5)]


def documented_reader():
    text = (ROOT / "docs" / "checkpoints.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S).group(1), names)
    return names["load_checkpoint"]


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor.shape


class PythonReads(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        subprocess.run([LOCKSTEP, "run", "-n", "3", "--no-logs", TRIAL, "odd", cls.folder], check=True)
        cls.checkpoint = cls.folder / "step-000000000005"

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def check(self, tensors):
        names = 0
        for name, tensor in tensors.items():
            if name in ("base", "transposed"):
                base = torch.arange(48, dtype=torch.float32).view(6, 8)
                expected = base.T if name == "transposed" else base
            else:
                dtype, shape = name.rsplit("_", 1)
                expected = (torch.arange(torch.Size(SHAPES[int(shape)]).numel()) % 100).to(getattr(torch, dtype))
                expected = expected.view(SHAPES[int(shape)])
            self.assertEqual(tensor.shape, expected.shape, name)
            if tensor.numel():
                self.assertEqual(tensor.dtype, expected.dtype, name)
                self.assertTrue(torch.equal(bits(tensor), bits(expected)), name)
            names += 1
        return names

    def test_the_documented_function(self):
        tensors, values = documented_reader()(self.checkpoint)
        self.assertEqual(self.check(tensors), 17 * len(SHAPES) + 2)
        self.assertEqual(values, {"values": [0.1, -2.0]})

    def test_converted_files(self):
        for name in ("all.pt", "one.safetensors"):
            everything = ["--all"] if name == "all.pt" else ["--item", "float32_5"]
            subprocess.run([LOCKSTEP, "ckpt", "convert", *everything, self.folder, self.folder / name], check=True)
        self.assertEqual(self.check(torch.load(self.folder / "all.pt", weights_only=True)), 17 * len(SHAPES) + 2)
        self.assertEqual(self.check(load_file(self.folder / "one.safetensors")), 1)

    def test_the_command(self):
        listed = subprocess.run([LOCKSTEP, "ckpt", "ls", self.folder], capture_output=True, text=True, check=True).stdout
        self.assertIn("step 5, 3 ranks, 121 tensors", listed)
        inside = subprocess.run([LOCKSTEP, "ckpt", "ls", self.checkpoint], capture_output=True, text=True, check=True).stdout
        self.assertIn("transposed  F32 [8, 6]", inside)
        verify = [LOCKSTEP, "ckpt", "verify", self.folder]
        self.assertIn("whole", subprocess.run(verify, capture_output=True, text=True, check=True).stdout)
        same = subprocess.run([LOCKSTEP, "ckpt", "diff", self.folder, self.checkpoint], capture_output=True, text=True)
        self.assertEqual((same.returncode, same.stdout), (0, ""))


if __name__ == "__main__":
    unittest.main()
