"""The unchanged book passes on other machines; `make machines` asks more of more of them."""

import platform
from dataclasses import replace

import pytest

from tools import machines
from tools.machines import MACHINES, Machine


@pytest.mark.parametrize("name", ["no-vectors", "any-intel"])
def test_the_unchanged_book_passes_on(name):
    here = replace(MACHINES[name], options=())  # the other workers of this run are at work
    done = machines.run(here, tests=())
    assert machines.passed(done), done.stdout[-4000:] + done.stderr[-2000:]


def test_kernels_for_any_processor_return_other_bits_than_our_own():
    """So that the machines above are more than one."""
    here = machines.fingerprint(Machine())
    if platform.machine().lower() not in ("x86_64", "amd64") or here.startswith("DEFAULT"):
        pytest.skip("this processor has no vector instructions that a variable could take away")
    assert machines.fingerprint(MACHINES["no-vectors"]).startswith("DEFAULT")
    assert machines.fingerprint(MACHINES["any-intel"]) != here


def test_a_machine_on_which_nothing_ran_has_not_passed():
    done = machines.run(Machine(options=("-k", "no such test")), tests=())
    assert not machines.passed(done)


def test_what_is_set_here_does_not_reach_a_machine(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    kept = machines.environment_of(Machine({"MKL_CBWR": "AVX2"}))
    assert "ATEN_CPU_CAPABILITY" not in kept
    assert "PYTEST_ADDOPTS" not in kept
    assert kept["MKL_CBWR"] == "AVX2"
