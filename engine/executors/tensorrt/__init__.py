"""TensorRT's engines within captured steps.

executor       one lane
engine_runs    runs of one engine at fixed addresses
"""
