"""Models in checkpoints of TensorFlow.

tensor2tensor  `convoy convert tensor2tensor`: reads the folder of a SliceNet
slicenet       converts a SliceNet's hyperparameters and variables
thumt          `convoy convert thumt`: reads the folder of an averaged attention network
aan            converts its hyperparameters and variables
checkpoint     reads variables of a checkpoint without TensorFlow
"""
