#!/usr/bin/env python3
"""Judges what check_gpu has run; prints what is wrong and ends with 1 if anything is.

    judge.py runs FILE       the table of a comparison (reference_trainer --json): no run failed, no
                             worker was lost, and every policy's loss fell
    judge.py tests FILE      what ctest printed where there is a GPU: nothing was skipped
    judge.py figures FILE    what the benchmarks printed: each against its target
"""
import json
import re
import sys

ABORT_P99_US = 100       # flag to idle
BANDWIDTH_RATIO = 0.7    # of pushes and pulls, of a copy within the device
THROUGHPUT_RATIO = 1     # over PyTorch's, of the same precision and batch


def judge_runs(text):
    runs = json.loads(text)["policies"]
    wrong = [] if runs else ["no run is in the table"]
    for run in runs:
        policy = run["policy"]
        if run["failure"]:
            wrong.append(f"{policy}: {run['failure']}")
        if run["lost_workers"]:
            wrong.append(f"{policy}: {run['lost_workers']} workers were lost")
        if not (run["final_loss"] is not None and run["final_loss"] < run["initial_loss"]):
            wrong.append(f"{policy}: the loss went from {run['initial_loss']} to {run['final_loss']}")
    return wrong


def judge_tests(text):
    if not re.search(r"^\d+% tests passed", text, re.MULTILINE):
        return ["ctest says nothing of its tests"]
    skipped = re.findall(r"Test +#\d+: (\S+) \.*\*\*\*Skipped", text)
    return [f"{name} was skipped although there is a GPU" for name in skipped]


def judge_figures(text):
    wrong = []

    def judge(what, figure, target, at_least):
        met = figure >= target if at_least else figure <= target
        bound = "at least" if at_least else "at most"
        print(f"{'met' if met else 'MISSED':7} {what}: {figure:.2f}, target {bound} {target:g}")
        if not met:
            wrong.append(f"{what} misses its target")

    aborts = re.findall(r"^cnn abort +batch +(\d+) +(\w+) +p50 \S+ us +p99 (\S+) us", text, re.MULTILINE)
    for batch, precision, p99 in aborts:
        judge(f"abort, batch {batch}, {precision}: p99 in us", float(p99), ABORT_P99_US, False)
    number = r" +(\d+\.\d+|\d+)"
    stores = re.findall(rf"^{number * 10}$", text, re.MULTILINE)
    for row in stores:
        judge(f"pull of {row[0]} MB over a copy", float(row[5]), BANDWIDTH_RATIO, True)
        judge(f"push of {row[0]} MB over a copy", float(row[9]), BANDWIDTH_RATIO, True)
    throughput = {}
    line = r"^cnn throughput +batch +(\d+) +(\w+) +(uninterrupted|PyTorch, eager) +(\d+) samples/s"
    for batch, precision, whose, figure in re.findall(line, text, re.MULTILINE):
        throughput[int(batch), precision, whose] = float(figure)
    for (batch, precision, whose), figure in throughput.items():
        own = throughput.get((batch, precision, "uninterrupted"))
        if whose != "uninterrupted" and own is not None:
            judge(f"throughput, batch {batch}, {precision}, over PyTorch's", own / figure, THROUGHPUT_RATIO, True)
    for what, found in (("abort", aborts), ("push and pull", stores), ("throughput", throughput)):
        if not found:
            wrong.append(f"there is no figure of {what}")
    return wrong


JUDGES = {"runs": judge_runs, "tests": judge_tests, "figures": judge_figures}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in JUDGES:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(sys.argv[2], encoding="utf-8") as file:
        wrong = JUDGES[sys.argv[1]](file.read())
    for line in wrong:
        print(f"judge.py: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
