"""The unchanged book passes on other machines; `make machines` asks more of more of them."""

import platform
import re
from dataclasses import replace

import pytest

from tools import machines
from tools.machines import MACHINES, Machine


@pytest.mark.lab
@pytest.mark.parametrize("name", ["no-vectors", "any-intel"])
def test_the_unchanged_book_passes_on(name):
    here = replace(MACHINES[name], options=())  # the other workers of this run are at work
    done = machines.run(here, tests=())
    assert machines.passed(done), done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.lab
def test_kernels_for_any_processor_return_other_bits_than_our_own():
    """So that the machines above are more than one."""
    here = machines.fingerprint(Machine())
    if platform.machine().lower() not in ("x86_64", "amd64") or here.startswith("DEFAULT"):
        pytest.skip("this processor has no vector instructions that a variable could take away")
    assert machines.fingerprint(MACHINES["no-vectors"]).startswith("DEFAULT")
    assert machines.fingerprint(MACHINES["any-intel"]) != here


@pytest.mark.lab
def test_a_machine_on_which_nothing_ran_has_not_passed():
    done = machines.run(Machine(options=("-k", "no such test")), tests=())
    assert not machines.passed(done)


@pytest.mark.lab
@pytest.mark.parametrize(("name", "language"), [("german", "de_DE"), ("turkish", "tr_TR")])
def test_a_machine_of_another_language_writes_a_comma(name, language):
    found = machines.fingerprint(MACHINES[name])
    if not machines.speaks(MACHINES[name], found):
        pytest.skip(f"{language}.UTF-8 cannot be compiled here: Debian has it in `locales`")
    assert found.endswith(f" {language}.UTF-8 0,5")


@pytest.mark.lab
def test_a_language_that_is_not_installed_is_told():
    machine = Machine({"LC_ALL": "xx_YY.UTF-8"})
    found = machines.fingerprint(machine)
    assert found.endswith(" C 0.5")
    assert "xx_YY.UTF-8 is not installed: not tried" in machines.told(machine, found)


@pytest.mark.lab
def test_the_book_runs_in_a_folder_with_blanks_and_letters_of_other_languages():
    name = MACHINES["turkish"].folder
    assert " " in name
    assert not name.isascii()
    done = machines.run(Machine(options=("-k", "symbols", "-v"), folder=name), tests=())
    assert machines.passed(done), done.stdout[-4000:] + done.stderr[-2000:]
    assert f"/{name}\n" in done.stdout  # pytest's rootdir


def test_the_machines_have_one_to_five_threads_and_two_seeds_of_hashes():
    settings = [machine.environment for machine in MACHINES.values()]
    assert {e.get("LITERATE_THREADS", "1") for e in settings} == {"1", "2", "3", "4", "5"}
    assert len({e["PYTHONHASHSEED"] for e in settings if "PYTHONHASHSEED" in e}) == 2


def test_what_is_set_here_does_not_reach_a_machine(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    kept = machines.environment_of(Machine({"MKL_CBWR": "AVX2"}))
    assert "ATEN_CPU_CAPABILITY" not in kept
    assert "PYTEST_ADDOPTS" not in kept
    assert kept["MKL_CBWR"] == "AVX2"


def test_two_machines_can_be_one_unless_they_are_told_different_things():
    both = machines.named("avx2+german")
    assert both.environment == MACHINES["avx2"].environment | MACHINES["german"].environment
    assert machines.named("no-vectors+turkish").folder == MACHINES["turkish"].folder
    with pytest.raises(ValueError, match="avx2\\+avx512: two of these are told different things"):
        machines.named("avx2+avx512")
    with pytest.raises(ValueError, match="no machine avx3; wanted any of as-it-is"):
        machines.named("avx3")


def test_the_gate_runs_two_machines_and_everything_runs_them_all():
    gate = (machines.ROOT / ".ci/run").read_text(encoding="utf-8")
    (names,) = re.findall(r'make machines NAME="(.*)"', gate)
    assert len([machines.named(name) for name in names.split()]) == 2
    makefile = (machines.ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^everything:.*\n((?:\t.*\n)+)", makefile, re.M)[1]
    assert "\t$(MAKE) machines\n" in recipe


def test_what_the_gate_leaves_out_of_the_site_everything_runs():
    """`make test-site` alone runs all that is marked `site`, the gate what its expression says."""
    gate = (machines.ROOT / ".ci/run").read_text(encoding="utf-8")
    assert 'make test-site SITE="smoke or not engines"\n' in gate
    assert "\t$(MAKE) test-site\n" in (machines.ROOT / "Makefile").read_text(encoding="utf-8")
