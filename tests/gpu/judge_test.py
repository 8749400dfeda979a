#!/usr/bin/env python3
"""What judge.py makes of good and of bad results."""
import importlib.util
import json
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True  # the source tree stays as it is

PATH = pathlib.Path(__file__).parent / "judge.py"
spec = importlib.util.spec_from_file_location("judge", PATH)
judge = importlib.util.module_from_spec(spec)
spec.loader.exec_module(judge)

FIGURES = """\
cnn throughput  batch  128  float  uninterrupted        {own} samples/s (median of 50; 10% 1, 90% 2)
cnn throughput  batch  128  float  interruptible        40000 samples/s (median of 50; 10% 1, 90% 2)
cnn abort       batch  128  float  p50 20.1 us  p99 {p99} us  max 130.0 us (flag to idle, 100 trials)
       MB   copy us      GB/s   pull us      GB/s  ratio  unchanged   push us      GB/s  ratio
      1.2       3.1       761       4.1       575   {pull}        2.0       6.1       774   1.02
cnn throughput  batch  128  float  PyTorch, eager       60000 samples/s (median of 50)
"""


def figures(own=60000, p99=99.9, pull=0.70):
    return FIGURES.format(own=own, p99=p99, pull=f"{pull:.2f}")


def runs(**changes):
    run = {"policy": "bsp", "failure": None, "lost_workers": 0, "initial_loss": 2.3, "final_loss": 1.1}
    return json.dumps({"policies": [run, {**run, "policy": "asp", **changes}]})


class Judge(unittest.TestCase):
    def test_runs(self):
        self.assertEqual(judge.judge_runs(runs()), [])
        self.assertEqual(judge.judge_runs(runs(lost_workers=1)), ["asp: 1 workers were lost"])
        self.assertEqual(judge.judge_runs(runs(failure="stalled")), ["asp: stalled"])
        for loss in (2.3, None, float("nan")):
            self.assertEqual(len(judge.judge_runs(runs(final_loss=loss))), 1, loss)
        self.assertEqual(judge.judge_runs('{"policies": []}'), ["no run is in the table"])

    def test_tests(self):
        passed = "100% tests passed, 0 tests failed out of 3\n"
        self.assertEqual(judge.judge_tests(passed), [])
        skipped = " 1/3 Test   #12: DeviceStoreIpc.Sums ......***Skipped  0.1 sec\n"
        self.assertEqual(len(judge.judge_tests(skipped + passed)), 1)
        self.assertEqual(len(judge.judge_tests("")), 1)

    def test_figures(self):
        self.assertEqual(judge.judge_figures(figures()), [])
        self.assertEqual(len(judge.judge_figures(figures(own=59000))), 1)
        self.assertEqual(len(judge.judge_figures(figures(p99=100.1))), 1)
        self.assertEqual(len(judge.judge_figures(figures(pull=0.69))), 1)
        self.assertEqual(len(judge.judge_figures("")), 3)


if __name__ == "__main__":
    unittest.main()
