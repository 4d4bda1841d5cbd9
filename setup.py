"""For tools that still call it; everything is declared in setup.cfg."""

from setuptools import setup

setup()
