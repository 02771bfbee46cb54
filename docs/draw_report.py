"""Draws docs/report.png: the examples of `ul2 report`'s page, R2's third, with the pointer on a span.

    ul2 report ul2 --output report.html && python docs/draw_report.py report.html

It needs selenium, Chromium and its driver.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator

from selenium import webdriver
from selenium.webdriver.common.by import By

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,900")


@contextlib.contextmanager
def opened(page: str) -> Iterator[webdriver.Chrome]:
    """A page in a browser without a window."""
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    with webdriver.Chrome(options=options) as driver:
        driver.get(pathlib.Path(page).resolve().as_uri())
        yield driver


def main(page: str) -> None:
    with opened(page) as driver:
        next(tab for tab in driver.find_elements(By.CSS_SELECTOR, "[role=tab]") if tab.text.endswith("_r2")).click()
        for _ in range(2):
            driver.find_element(By.ID, "next").click()
        span = driver.find_elements(By.CSS_SELECTOR, "#inputs [data-span]")[7]
        driver.execute_script("document.getElementById('examples').scrollIntoView()")
        webdriver.ActionChains(driver).move_to_element(span).perform()
        driver.save_screenshot(str(pathlib.Path(__file__).parent / "report.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
