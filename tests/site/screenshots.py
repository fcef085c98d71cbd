"""Take the pictures of the README anew: `make screenshots`."""

import tempfile
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.site import book

TARGET = book.DOCS / "assets" / "screenshots"
PAGE, SECTION = "foundations/averaging.html", "#from-averages-to-attention"
SCHEMES = ("light", "dark")


def main():
    """Build the site, and photograph one section of a chapter in both schemes."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        site = Path(folder) / "site"
        result = book.build(site)
        if result.returncode:
            raise SystemExit(result.stderr)
        server = book.server_for(site)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path = book.chromium_path(started) or ""
        browser = started.chromium.launch(executable_path=path or None, args=book.FLAGS)
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=scheme)
            page.goto(f"http://127.0.0.1:{server.server_port}/{PAGE}")
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
        server.shutdown()


if __name__ == "__main__":
    main()
