"""The rest is in pyproject.toml. The gin files, which are beside the package, are in it when it is installed."""

from setuptools import find_packages, setup

PACKAGES = [*find_packages(include=["ul2_tasks*"]), "ul2_tasks.gin", "ul2_tasks.gin.models"]
setup(packages=PACKAGES, package_dir={"ul2_tasks.gin": "gin"})
