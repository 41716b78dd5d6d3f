"""One thread: sums in a fixed order, and no quarrel over cores."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
