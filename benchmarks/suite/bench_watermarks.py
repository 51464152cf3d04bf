"""Coalescing watermarks: the cost of one observation must not grow with the number of inputs."""

import numpy as np

from jetfast.kernels.watermarks import WatermarkCoalescer


class ObserveWatermark:
    """100,000 watermarks on random inputs (and 100,000 that all move the least: the worst case), from Python."""

    params = [[1, 16, 17, 1024], ["random", "least moves"]]
    param_names = ["inputs", "order"]

    def setup(self, input_count: int, order: str) -> None:
        self.input_count = input_count
        if order == "random":
            inputs = np.random.default_rng(1).integers(0, input_count, 100_000)
        else:
            inputs = np.arange(100_000) % input_count
        self.inputs = inputs.tolist()

    def time_observe(self, input_count: int, order: str) -> None:
        observe = WatermarkCoalescer(self.input_count).observe_watermark
        for value, index in enumerate(self.inputs):
            observe(index, value)
