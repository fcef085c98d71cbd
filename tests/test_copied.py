"""What a reader copies, run as they would run it: a block with everything above it, in a file of its own."""

import json
import os
import subprocess
import sys

import pytest

from literate import compare, export
from literate.run import fetched
from tests.pages import ROOT, RUNNING, each
from tests.systems import FORK

pytestmark = [FORK, pytest.mark.lab]  # it runs the book once more

# For each page a process of its own, forked from one that has torch imported and nothing else. Most
# programs begin with the whole of the one before: that part runs once. One that is no beginning of
# the next runs its end in a fork, so no program sees another's end.
RUNNER = r"""
import contextlib, io, json, os, shutil, sys, tempfile, traceback, types
import torch
torch.set_num_threads(1)

def forked(work):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        with open(writer, "w", encoding="utf-8") as out:
            work(out)
            out.flush()
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text

def run(program, begun, module, printed):
    with open("copied.py", "w", encoding="utf-8") as file:
        file.write(program)
    chunk = "\n" * begun.count("\n") + program[len(begun):]
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(chunk, os.path.abspath("copied.py"), "exec"), module.__dict__)
        except BaseException as error:
            print(traceback.format_exception_only(error)[0].partition("\n")[0])  # as the page

def run_page(programs, out):
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    module.__file__ = os.path.abspath("copied.py")
    begun, printed, results = "", io.StringIO(), []
    for program, following in zip(programs, [*programs[1:], ""]):
        assert program.startswith(begun)

        def finish(report):
            run(program, begun, module, printed)
            report.write(printed.getvalue())

        if following.startswith(program):
            run(program, begun, module, printed)
            results.append(printed.getvalue())
            begun = program
        else:
            results.append(forked(finish))
    json.dump(results, out)

for line in sys.stdin:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(json.dumps(forked(lambda out: run_page(json.loads(line), out))), flush=True)
        os.chdir("/")
"""


@pytest.fixture(scope="session")
def run_each(tmp_path_factory):
    """`run_each(programs)` returns what each program printed, errors included."""
    command = [sys.executable, "-c", RUNNER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environ = os.environ | fetched(ROOT, tmp_path_factory.mktemp("home") / "torch")
    with subprocess.Popen(command, **pipes, text=True, env=environ) as runner:

        def run(programs):
            runner.stdin.write(json.dumps(programs) + "\n")
            runner.stdin.flush()
            return json.loads(json.loads(runner.stdout.readline()))

        yield run
        runner.stdin.close()
        runner.wait(timeout=60)


def full_lines(text):
    """The lines of `text` that are not empty: a page does not show those that an output ends with."""
    return "".join(f"{line}\n" for line in text.split("\n") if line.strip())


@each([page for page in RUNNING if page.name != "README.md"])
def test_what_is_copied_prints_what_the_page_shows(run_each, page, capsys):
    agreed, expected, moved = 0, "", []
    varies = False
    printed_by_each = run_each(export.programs(page))
    for block, printed in zip(page.blocks, printed_by_each, strict=True):
        expected += block.output.text.rstrip("\n") + "\n" if block.output else ""
        varies = varies or bool(block.output and "varies" in block.output.options)
        if varies and not compare.on_reference_platform(ROOT):
            pytest.skip("the page prints what PyTorch promises on the reference platform alone")
        if compare.agree(full_lines(expected), full_lines(printed)):
            agreed += 1
        else:
            moved.append(f"{page.name}:{block.line} printed\n{printed}\nthe page shows\n{expected}")
    with capsys.disabled():
        print(f"\n{page.name}: {agreed} of {len(page.blocks)} blocks print what the page shows")
    assert moved == []
