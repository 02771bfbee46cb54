"""Draws docs/image_text.png: an edit of one step on the page of `ul2 report images`.

    ul2 report images --output report.html && python docs/draw_image_text.py report.html

It needs selenium, Chromium and its driver.
"""

import pathlib
import sys

from selenium import webdriver
from selenium.webdriver.common.by import By

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,900")
ONE_STEP = "//div[@class='example'][h3='C V T N'][not(contains(., 'dropped'))]"  # clean latents, ViT, text, noised latents


def main(page: str) -> None:
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    with webdriver.Chrome(options=options) as driver:
        driver.get(pathlib.Path(page).resolve().as_uri())
        driver.find_element(By.XPATH, ONE_STEP).screenshot(str(pathlib.Path(__file__).parent / "image_text.png"))


if __name__ == "__main__":
    main(*sys.argv[1:])
