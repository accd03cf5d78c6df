"""One cluster of three servers for all tests of this folder, which therefore run in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_kit import LocalCluster, local_cluster

# As text: there are tens of thousands of items, and comparing paths took a fifth of the collection.
FOLDER = f"{Path(__file__).parent}/"


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A leader takes 4 to 9 s to be elected after a kill, so nothing here is quick."""
    for item in items:
        if str(item.path).startswith(FOLDER):
            item.add_marker(pytest.mark.xdist_group("cluster"))
            item.add_marker(pytest.mark.timeout(180))


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: LocalCluster) -> LocalCluster:
    """All nodes run and are well when a test begins."""
    shared_cluster.start()
    return shared_cluster
