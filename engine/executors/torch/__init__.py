"""Plain torch: the readable reference.

devices     memory, load and power of CUDA devices
executor    one lane
int8        the int8 variant
"""
