"""Loads the campaign plugin: `pytest suites --cluster NAME` runs the checks, `pytest` the project's own tests."""

pytest_plugins = ["suites.plugin"]
