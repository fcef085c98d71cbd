"""What does a reader wait for, in the book and in what it stands on? Prints ratios from one run.

Run by `make bench`, or: python -m tests.site.bench
A first Run, from the click to what is printed, is timed beside Pyodide alone, which prints 1 in a
worker of a page of its own: both from the same address, with all files in the browser's cache.
A chapter as it opens on a phone is timed beside a page of the bare theme with the same text, by its
blocking time: what each task takes of the browser beyond 50 ms, on a processor slowed four times.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

from literate.export import markdown
from literate.page import read
from tests.site import book

CHAPTER = "foundations/averaging"
PRINTS = 1  # the first block of it that prints
PYODIDE = """<!doctype html><title>Pyodide alone</title><button>Run</button><script>
document.querySelector("button").onclick = () => {
  const start = performance.now();
  new Worker("pyodide-alone.js", { type: "module" }).onmessage = () => {
    window.took = performance.now() - start;
  };
};
</script>"""
WORKER = """import { loadPyodide } from "./assets/vendor/pyodide/pyodide.mjs";
const lockFileContents = { info: { abi_version: "2026_0" }, packages: {} };
const indexURL = new URL("assets/vendor/pyodide/", location.href).href;
const python = await loadPyodide({ indexURL, lockFileContents, stdout: (text) => postMessage(text) });
python.runPython("print(1)");"""
# From the click on Run until its block has a verdict.
TIMED = f"""() => {{
  document.querySelectorAll("[data-run=run]")[{PRINTS}].addEventListener("click", () => {{
    const start = performance.now();
    const look = () => {{
      if (({book.ENDED})({PRINTS})) window.took = performance.now() - start;
      else setTimeout(look, 5);
    }};
    setTimeout(look, 5);
  }}, true);
}}"""
BLOCKED = """window.blocked = 0;
new PerformanceObserver((tasks) => {
  for (const { duration } of tasks.getEntries()) window.blocked += Math.max(0, duration - 50);
}).observe({ type: "longtask", buffered: true });"""
BARE = {
    "site_name": "The bare theme",
    "use_directory_urls": False,
    "theme": {"name": "material", "font": False},
    "markdown_extensions": [
        *("admonition", "attr_list", "footnotes", "md_in_html", "tables"),
        *("pymdownx.details", "pymdownx.highlight", "pymdownx.superfences"),
    ],
}


def bare_page(folder: Path, site: Path) -> None:
    """Build into `site` a page with the text of the chapter, and nothing of the book's own."""
    (folder / "docs").mkdir(parents=True)
    text = markdown(read(book.DOCS / f"{CHAPTER}.md"))
    (folder / "docs/index.md").write_text(text, encoding="utf-8")
    (folder / "mkdocs.yml").write_text(json.dumps(BARE), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def first_run(context: BrowserContext, address: str) -> float:
    """Return the milliseconds from a click on a first Run, in the chapter, to its verdict."""
    page = context.new_page()
    page.goto(f"{address}{CHAPTER}.html", wait_until="load")
    page.locator("[data-run=run]").nth(PRINTS).wait_for()
    page.evaluate(TIMED)
    page.locator("[data-run=run]").nth(PRINTS).click()
    return _took(page)


def pyodide_alone(context: BrowserContext, address: str) -> float:
    """Return the milliseconds from a click to the 1 that Pyodide prints."""
    page = context.new_page()
    page.goto(f"{address}pyodide-alone.html")
    page.click("button")
    return _took(page)


def _took(page) -> float:
    page.wait_for_function("window.took", timeout=300_000)
    took = page.evaluate("window.took")
    page.close()
    return took


def blocking(context: BrowserContext, address: str) -> float:
    """Return the milliseconds for which the page at `address` blocks a phone as it opens."""
    page = context.new_page()
    page.add_init_script(BLOCKED)
    page.set_viewport_size(book.NARROW)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.goto(address, wait_until="networkidle")
    page.wait_for_timeout(1000)
    blocked = page.evaluate("window.blocked")
    page.close()
    return blocked


def compare(
    title: str, rounds: int, ours: Callable[[], float], theirs: Callable[[], float]
) -> None:
    """Time both by turns, after one round that is not counted, and print the median ratio."""
    ours(), theirs()
    pairs = []
    for at in range(rounds):
        first, second = (ours, theirs) if at % 2 else (theirs, ours)
        times = {first: first(), second: second()}
        pairs.append((times[ours], times[theirs]))
    ratio = statistics.median(mine / other for mine, other in pairs)
    mine, other = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"{title}: {mine:,.0f} ms beside {other:,.0f} ms, {ratio:.2f} times, {rounds} rounds")


def main() -> None:
    """Build the book and the bare page, and compare them in one Chromium."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as started,
        book.served(Path(folder) / "site") as address,
        book.served(Path(folder) / "bare-site") as bare,
    ):
        bare_page(Path(folder) / "bare", Path(folder) / "bare-site")
        result = book.build(Path(folder) / "site")
        if result.returncode:
            raise SystemExit(result.stderr)
        (Path(folder) / "site/pyodide-alone.html").write_text(PYODIDE, encoding="utf-8")
        (Path(folder) / "site/pyodide-alone.js").write_text(WORKER, encoding="utf-8")
        # A browser with a folder of its own keeps what it has fetched for the next page.
        context = started.chromium.launch_persistent_context(
            Path(folder) / "reader",
            executable_path=book.chromium_path(started),
            args=book.FLAGS,
        )
        print(f"{CHAPTER}, in Chromium {context.browser.version if context.browser else ''}")
        compare(
            "first Run, beside Pyodide alone",
            rounds,
            lambda: first_run(context, address),
            lambda: pyodide_alone(context, address),
        )
        compare(
            "blocking time on a phone, beside the bare theme with the same text",
            rounds,
            lambda: blocking(context, f"{address}{CHAPTER}.html"),
            lambda: blocking(context, f"{bare}index.html"),
        )
        context.close()


if __name__ == "__main__":
    main()
