"""What bench/run.py says of the times of collectives: ratios with their floors, from rows {"all_reduce 25 MiB": {"private": us, ...}}."""
from competition import ratio


def collective_ratios(rows):
    floors = [("all_reduce 8 B", "private", "openmpi", 1.5), *(("all_reduce " + size, "shared", "openmpi", floor)
                for size, floor in (("64 KiB", 4), ("1 MiB", 3.5), ("25 MiB", 4.5), ("100 MiB", 6))),
              ("all_reduce 25 MiB", "shared", "gloo", 10), ("all_reduce 25 MiB", "shared", "mpich", 5),
              *(("all_reduce " + size, "private", "openmpi", floor)
                for size, floor in (("64 KiB", 1.3), ("1 MiB", 1.2), ("25 MiB", 1.4), ("100 MiB", 2.5))),
              *(("reduce_scatter 25 MiB", memory, "mpich", floor) for memory, floor in (("shared", 3), ("private", None))),
              *((verb + " 25 MiB", memory, "openmpi", 1) for memory in ("shared", "private")
                for verb in ("broadcast", "all_gather", "all_to_all", "send")),
              *((verb + " 25 MiB", "lockstep beside openmpi", "openmpi beside lockstep", 1) for verb in ("all_gather", "all_to_all"))]
    ratios = {f"{what}: {peer} / {memory}": ratio(rows[what][peer] / rows[what][memory], at_least=floor)
              for what, memory, peer, floor in floors if peer in rows[what]}
    bounds = [("all_reduce 25 MiB", "shared", "bound", 1.15),
              *((verb + " 25 MiB", library, library + " copies", 1.03) for verb in ("all_gather", "all_to_all") for library in ("private", "openmpi"))]
    return ratios | {f"{what}: {library} / {bound}": ratio(rows[what][library] / rows[what][bound], at_most=ceiling)
                     for what, library, bound, ceiling in bounds if bound in rows[what]}


def tensor_ratios(rows):
    """What a call on tensors costs over one on spans: a part of it from 64 KiB on, and microseconds below."""
    large = {what: row for what, row in rows.items() if "tensor" in row and ("MiB" in what or what == "all_reduce 64 KiB")}
    small = {what: row for what, row in rows.items() if "tensor" in row and what not in large}
    return ({f"{what}: tensor / span": ratio(row["tensor"] / row["span"], at_most=1.03) for what, row in large.items()}
            | {f"{what}: tensor - span, us": ratio(row["tensor"] - row["span"], at_most=2) for what, row in small.items()})
