"""The examples run, and train what they say."""


import pytest

from conftest import HERE

EXAMPLES = HERE.parent / "examples"


@pytest.mark.parametrize("policy", ["bsp", "ssp:3", "specsync+asp"])
def test_parameter_server(daemon, run, policy):
    process = run(
        EXAMPLES / "parameter_server.py", 4, 200, policy, env={"SYNCD_ADDR": daemon.address}
    )
    code, out, err = process.finish()
    assert code == 0, err
    assert f"4 workers under {policy}: y = 3.0" in out


def test_a_group_that_is_started_again_goes_on(daemon, run, tmp_path):
    for number, (iterations, said) in enumerate([(5, "finished with 5.0"), (8, "goes on at iteration 5")]):
        env = {"SYNCD_ADDR": daemon.address, "SYNCD_LAUNCH": f"demo/{number}"}
        group = [
            run(EXAMPLES / "launch.py", rank, 2, iterations, tmp_path / "model", env=env)
            for rank in range(2)
        ]
        for process in group:
            code, out, err = process.finish()
            assert code == 0, err
            assert said in out
            assert f"finished with {iterations}.0" in out


def test_which_rank_hangs(daemon, run):
    process = run(EXAMPLES / "which_rank_hangs.py", 3, env={"SYNCD_ADDR": daemon.address})
    code, out, err = process.finish()
    assert code == 0, err
    assert "rank 0 hears: waiting for worker 2 (" in out
    assert "still computing" in out


def test_each_fits_a_page():
    for example in EXAMPLES.glob("*.py"):
        assert len(example.read_text().splitlines()) <= 66
        compile(example.read_text(), example, "exec")
    assert len(list(EXAMPLES.glob("*.py"))) >= 1
