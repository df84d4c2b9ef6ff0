"""A real browser for the tests: found on the machine, or installed by `make browser`.

Named by CHROME and CHROMEDRIVER, or found on the path. Pages are served on the loopback
interface, and nothing is downloaded: the driver is given by path.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser", "chrome")
DRIVERS = ("chromedriver", "chromium-driver", "chromium.chromedriver")
PACKAGES = ("chromium", "chromium-driver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
)
# Seconds until a page that does not load, or does not become active, is an error.
PATIENCE = 20.0


class NoBrowserError(RuntimeError):
    """There is no browser, or no driver for it."""


def _found(variable: str, names: tuple[str, ...], what: str) -> str:
    given = os.environ.get(variable)
    for name in (given,) if given else names:
        path = shutil.which(name)
        if path is not None:
            return path
    looked = (
        f"{variable}={given} is no program" if given else f"none of {', '.join(names)} is there"
    )
    raise NoBrowserError(
        f"no {what}: {looked}; install Chromium and its driver (Debian: apt-get install "
        f"{' '.join(PACKAGES)}), or name them in CHROME and CHROMEDRIVER"
    )


def find() -> tuple[str, str]:
    """Paths of the browser and of its driver."""
    return (
        _found("CHROME", BROWSERS, "browser for the tests"),
        _found("CHROMEDRIVER", DRIVERS, "driver of the browser"),
    )


def install() -> None:
    """Do nothing where a browser is found; else install one with apt-get, or say what to do."""
    try:
        find()
    except NoBrowserError as missing:
        if os.environ.get("CHROME") or os.environ.get("CHROMEDRIVER"):
            raise
        apt = shutil.which("apt-get")
        sudo = [] if os.geteuid() == 0 else [shutil.which("sudo") or ""]
        if apt is None or sudo == [""]:
            raise
        print(f"scrollmt: installing {' and '.join(PACKAGES)} for the tests of pages")
        wanted = [*sudo, apt, "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
        # A machine that has never listed its packages fails at first, and after listing does not.
        if subprocess.run(wanted).returncode != 0:
            subprocess.run([*sudo, apt, "update", "-qq"])
            if subprocess.run(wanted).returncode != 0:
                raise missing from None
        find()


class Browser:
    """A headless Chromium that remembers what it asked the network for."""

    def __init__(self, driver: Any):
        self.driver = driver

    def open(
        self, address: str, *, width: int = 1280, height: int = 900, scheme: str = "light"
    ) -> None:
        """Load a page in a window of that size, with the reader's choice of light or dark."""
        self.requests()
        self.driver.get_log("browser")
        self._cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        chosen = {"name": "prefers-color-scheme", "value": scheme}
        self._cdp("Emulation.setEmulatedMedia", features=[chosen])
        self.driver.get(address)
        # The driver may come back while the page still loads.
        until = time.monotonic() + PATIENCE
        while self.run("return [location.href, document.readyState]") != [address, "complete"]:
            if time.monotonic() > until:
                raise TimeoutError(f"{address} was not loaded within {PATIENCE:g} seconds")
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def console(self) -> list[str]:
        """What the page has complained about since it was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses asked for since the last call."""
        events = (
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        )
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, path: Path) -> None:
        """The whole page, however long."""
        # A headless browser that has nothing new to paint may wait for a frame without end; while
        # it casts its screen it paints.
        self._start_painting()
        try:
            shot = self._cdp("Page.captureScreenshot", captureBeyondViewport=True)
        finally:
            self._cdp("Page.stopScreencast")
        path.write_bytes(base64.b64decode(shot["data"]))

    def _start_painting(self) -> None:
        """Cast the screen; a page that was just loaded may not be the active one for a moment."""
        from selenium.common.exceptions import TimeoutException

        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._cdp("Page.startScreencast", format="jpeg", quality=1)
                return
            except TimeoutException as error:
                if "Not attached to an active page" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _cdp(self, command: str, **params: Any) -> Any:
        return self.driver.execute_cdp_cmd(command, params)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a profile of its own that is gone afterwards."""
    from selenium import webdriver

    program, driver_program = find()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=driver_program)
        driver = webdriver.Chrome(options=options, service=service)
        try:
            # The start page asks for things of its own.
            driver.get("about:blank")
            yield Browser(driver)
        finally:
            driver.quit()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on this machine's loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    try:
        install()
    except NoBrowserError as error:
        print(f"scrollmt: {error}", file=sys.stderr)
        sys.exit(1)
