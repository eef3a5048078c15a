"""What bench/run.py asks the machine."""
import os
import platform
import re
import resource


def busy_seconds():
    """Of all cores since boot; time stolen by the hypervisor counts as busy."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, open("/proc/stat").readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu():
    fields = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.*)$", open("/proc/cpuinfo").read(), re.M))
    return {"name": fields.get("model name", platform.machine()), "cores": os.cpu_count(),
            "family_model_stepping": [fields.get(k) for k in ("cpu family", "model", "stepping")]}


def machine_folder(results):
    machine = re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(\w+\)", "", cpu()["name"]).lower()).strip("-")
    return results / f"{machine}-{os.cpu_count()}-cores"
