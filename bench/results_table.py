"""The results of bench/run.py as a page."""


def table(results):
    lines = ["# Measured here", "", "Written by `bench/run.py`, whose head says how.", ""]
    for name, r in results.items():
        lines += [f"## {name}{' (preliminary)' if r['preliminary'] else ''}", "",
                  f"{' '.join(r['what'].split())} {r['date']}, {r['cpu']['cores']} cores of {r['cpu']['name']}, "
                  + ", ".join(f"{k} {v}" for k, v in r["versions"].items())
                  + f"; {r['dropped_runs']} disturbed runs dropped. `{r['command']}`", ""]
        columns = list(dict.fromkeys(c for row in r["medians"].values() for c in row))
        lines += [f"| {r['unit']} | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
        for row, values in r["medians"].items():
            lines += [f"| {row} | " + " | ".join(f"{values[c]:g}" if c in values else "" for c in columns) + " |"]
        lines += [""]
        for what, q in r["ratios"].items():
            bound = [f" (floor: {k} {q[k]}: {'met' if q['met'] else 'MISSED'})" for k in ("at least", "at most") if k in q]
            lines += [f"* {what} = {q['value']}{''.join(bound)}"]
        lines += [""]
    return "\n".join(lines)
