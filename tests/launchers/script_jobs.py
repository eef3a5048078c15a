"""What tests of the scripts in docs/clusters/ have in common."""
import os
import pathlib
import tempfile

from slurm import free_ports

LOCKSTEP = os.environ["LAUNCHER_TEST_COMMAND"]


def prepare_script_test(test, own_commands=False):
    """Gives the test a folder with a job.secret, and an environment of no job whose PATH has `lockstep`; with `own_commands` what
    the test puts into its folder comes before."""
    folder = tempfile.TemporaryDirectory(prefix="c-")  # short: paths of sockets have an end
    test.addCleanup(folder.cleanup)
    test.folder = pathlib.Path(folder.name)
    (test.folder / "job.secret").write_bytes(os.urandom(32))
    (test.folder / "job.secret").chmod(0o600)
    foreign = ("RANK", "WORLD_SIZE", "MASTER_", "LOCKSTEP_", "SLURM_", "OMPI_", "PMI")
    test.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    first = [folder.name] if own_commands else []
    test.environment |= {"XDG_RUNTIME_DIR": folder.name, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_ports(1)[0]),
                         "PATH": ":".join([*first, str(pathlib.Path(LOCKSTEP).parent), os.environ["PATH"]])}
