pytest_plugins = ["literate.pytest_plugin"]
