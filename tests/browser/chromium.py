"""Headless Chromium as tests drive it, and what they measure on a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.common.exceptions import JavascriptException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE_S = 60

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

LOW_CONTRAST = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const backdrop = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const [r, g, b, alpha = 1] = channels(getComputedStyle(each).backgroundColor);
    if (alpha === 1) return [r, g, b];
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
};
const found = new Set();
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility() || element.closest("svg")) continue;
  const [light, dark] = [channels(getComputedStyle(element).color).slice(0, 3), backdrop(element)]
    .map(luminance).sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05);
  if (ratio < 4.5) found.add([ratio.toFixed(2), element.outerHTML.slice(0, 100)].join(" "));
}
return [...found];
"""
"""The texts whose contrast is below that of WCAG 2 at level AA."""

UNNAMED = """
const found = [];
for (const field of document.querySelectorAll("input:not([type=hidden]), select, button, a")) {
  const name = field.labels?.length ? field.labels[0].textContent : field.textContent || field.ariaLabel;
  if (!name?.trim()) found.push(field.outerHTML);
}
for (const table of document.querySelectorAll("table")) {
  if (!table.querySelector("thead th[scope=col]")) found.push("a table without headers");
}
if (document.querySelectorAll("h1").length !== 1) found.push("not one h1");
return found;
"""
"""Fields and links without a name, and tables without headers."""

REACHABLE = """
const every = "a[href], button, input:not([type=hidden]), select, [tabindex='0']";
return [...document.querySelectorAll(every)].filter((each) => each.checkVisibility()).length;
"""
"""How many elements of a page the keyboard should reach."""

FOCUSED = """
const at = document.activeElement;
window.seen ??= new Set();
if (at === document.body) return {seen: seen.size, name: "", isMarked: true};
seen.add(at);
const name = at.className || at.id || at.tagName;
return {seen: seen.size, name, isMarked: getComputedStyle(at).outlineStyle !== "none"};
"""
"""The element with the focus, and how many have had it so far."""


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def show_as(self, width: int, scheme: str) -> None:
        """Change the width of the window and the preferred color scheme."""
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def ask(self, script: str, *arguments: str) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, key: str) -> None:
        """Press a key, wherever the focus is."""
        ActionChains(self.driver).send_keys(key).perform()

    def wait_for_text(self, text: str) -> None:
        """Wait until the content of the page shows a text.

        One script finds the element and reads it: between two calls, the page may replace the element.
        """
        script = "return document.getElementById('main')?.innerText.includes(arguments[0])"
        # A page that is left while the script runs answers with an error.
        wait = WebDriverWait(self.driver, PATIENCE_S, ignored_exceptions=[JavascriptException])
        wait.until(lambda driver: driver.execute_script(script, text), f"The page never showed {text!r}.")

    def messages(self) -> list[str]:
        """What the page has written to the browser's console since the last call: errors, and refused content."""
        return [each["message"] for each in self.driver.get_log("browser")]


def is_there() -> bool:
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that is ended with the block."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
