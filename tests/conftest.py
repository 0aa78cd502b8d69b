"""One thread for torch: its pool would fight with the engine's threads and other test processes."""

import torch

torch.set_num_threads(1)
