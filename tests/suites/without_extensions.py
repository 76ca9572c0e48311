"""A pytest plugin for SQLAlchemy's tests of PostgreSQL on a server without extensions: they are not made before the first test."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart():
    from sqlalchemy.dialects.postgresql import provision

    provision._extensions.clear()
