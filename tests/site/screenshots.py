"""Take the pictures of the README anew: `make screenshots`."""

import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.site import book

TARGET = book.DOCS / "assets" / "screenshots"
PAGE, SECTION = "foundations/dot-product.html", "#all-pairs-at-once"
SCHEMES = ("light", "dark")


def main():
    """Build the site, and photograph one section of a chapter in both schemes."""
    TARGET.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        book.served(site := Path(folder) / "site") as address,
        sync_playwright() as started,
    ):
        result = book.build(site)
        if result.returncode:
            raise SystemExit(result.stderr)
        path = book.chromium_path(started) or ""
        browser = started.chromium.launch(executable_path=path or None, args=book.FLAGS)
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=scheme)
            page.goto(address + PAGE)
            page.wait_for_load_state("networkidle")
            page.locator(SECTION).scroll_into_view_if_needed()
            page.evaluate("id => document.querySelector(id).scrollIntoView()", SECTION)
            page.mouse.wheel(0, 560)
            page.wait_for_timeout(500)  # the scroll and the fonts settle
            picture = TARGET / f"chapter-{scheme}.png"
            page.screenshot(path=picture)
            Image.open(picture).quantize(256, method=Image.Quantize.FASTOCTREE).save(
                picture, optimize=True
            )
            print(picture.relative_to(book.ROOT), f"{picture.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
