"""Draws docs/image_text.png: an edit of one step on the page of `ul2 report images`.

    ul2 report images --output report.html && python docs/draw_image_text.py report.html

It needs selenium, Chromium and its driver.
"""

import pathlib
import sys

from draw_report import opened
from selenium.webdriver.common.by import By

ONE_STEP = "//div[@class='example'][h3='C V T N'][not(contains(., 'dropped'))]"  # clean latents, ViT, text, noised latents


def main(page: str) -> None:
    with opened(page) as driver:
        driver.find_element(By.XPATH, ONE_STEP).screenshot(str(pathlib.Path(__file__).parent / "image_text.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
