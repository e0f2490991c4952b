"""A headless Chromium for what draws pages: found on the machine, driven by Selenium, never downloaded."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-device-scale-factor=1",
)


def missing() -> str:
    """Why no browser can be driven here; empty if one can."""
    if not any(shutil.which(name) for name in _BROWSERS):
        return f"no Chromium on this machine (looked for {', '.join(_BROWSERS)})"
    if shutil.which("chromedriver") is None:
        return "no chromedriver on this machine (Debian: apt-get install chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return 'Selenium is not installed (pip install "cann-env[dev]")'
    return ""


@contextmanager
def chromium(width: int = 1500, height: int = 900, *, dark: bool = False) -> Iterator[Chrome]:
    """A browser with an empty profile, closed at the end.

    Args:
        width: Of the window (pixels).
        height: Of the window (pixels).
        dark: Pages are told that the system is dark.
    """
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = next(found for name in _BROWSERS if (found := shutil.which(name)))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (*_QUIET, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
            options.add_argument(argument)
        if dark:
            options.add_argument("--blink-settings=preferredColorScheme=0")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()
