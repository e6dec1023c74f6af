"""The steps of features: plain sentences that pytest-bdd reads, each of which acts on a `ScenarioRun`.

`plugin` is the entry point for pytest and loads the others on demand. Nothing else imports pytest.
"""
