"""Plain torch: the readable reference.

executor    one lane
int8        the int8 variant
"""
