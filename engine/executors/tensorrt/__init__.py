"""TensorRT's engines within captured steps.

executor       one lane
engine_runs    one engine's runs on places that stay
"""
