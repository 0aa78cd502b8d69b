"""Templates of sentence pairs for training, their values, and the code that fills them."""
