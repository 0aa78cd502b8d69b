"""A model on disk: what a bundle holds, checked before use and never half written. No torch.

bundle      open and write a bundle
manifest    the files that a bundle lists, checked before use
config      `ModelConfig`: one description for all architectures
stacks      one side of a model, as its architecture describes it
adaptive    adaptive softmax and input
presets     configurations by the names that people use
specs       shapes of what a model keeps for a source and for each hypothesis
graph_io    the names and types of a step graph's inputs
recipes     how the initializers of a graph are computed from the weights
weights     weights as stored: floats and int8
tensors     files of tensors, written piece by piece and mapped
tables      constant tables: positions, timing
shortlist   candidate target tokens for a source and a target language
engines     TensorRT engines: their folders and checks
json_file   read JSON files
strict      dataclasses from JSON objects
folder      replace a folder as a whole
"""
