"""Models whose weights lie in checkpoints of TensorFlow; nobody else imports this room.

tensor2tensor  `convoy convert tensor2tensor`: a SliceNet's folder to a model
slicenet       its options and variables to ours
thumt          `convoy convert thumt`: a folder of averaged attention to a model
aan            its options and variables to ours
checkpoint     variables of a checkpoint, read without TensorFlow
"""
