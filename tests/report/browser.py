"""A real Chromium for tests of reports: pages, what they log, what they ask for."""

import json
import os
import shutil
import tempfile
from contextlib import contextmanager

import pytest

DRIVER = shutil.which("chromedriver")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SWITCHES = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
)


def needs_a_browser():
    """Skip, and say how to get one, where there is none; fail where there has to be one."""
    if os.environ.get("TASKMIX_BROWSER") == "required" and None in (CHROMIUM, DRIVER):
        pytest.fail("there is no chromium with chromedriver, and TASKMIX_BROWSER asks for one")
    pytest.importorskip("selenium", reason="selenium is not installed (extra `dev`)")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no chromium with chromedriver; `make browser` installs them")


class Browser:
    """One window of a given size, light or dark."""

    def __init__(self, driver):
        self.driver = driver

    def show(self, path, width=1280, height=900, dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        return self

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def problems(self):
        """What the page complained of in the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses that the page asked for."""
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        return [
            one["params"]["request"]["url"]
            for one in messages
            if one["method"] == "Network.requestWillBeSent"
        ]

    def move(self, selector, x, y, kind="mouseMoved", button="none"):
        """The pointer to a place within an element, given as shares of its size."""
        box = self.run(
            "const e = document.querySelector(arguments[0]); e.scrollIntoView({block: 'center', "
            "behavior: 'instant'}); const b = e.getBoundingClientRect(); "
            "return [b.left, b.top, b.width, b.height];",
            selector,
        )
        self.driver.execute_cdp_cmd(
            "Input.dispatchMouseEvent",
            {
                "type": kind,
                "x": box[0] + x * box[2],
                "y": box[1] + y * box[3],
                "button": button,
                "buttons": int(button == "left"),
                "clickCount": int(button == "left"),
            },
        )


@contextmanager
def chromium():
    """A browser with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for switch in (*SWITCHES, f"user-data-dir={profile}"):
            options.add_argument(f"--{switch}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        # A busy machine takes its time.
        driver.set_script_timeout(300)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
