"""A model on disk: what a bundle holds, checked before use and never half written. No torch.

bundle      open and write a bundle
manifest    the files that a bundle lists, checked before use
config      `ModelConfig`: one description for all architectures
stacks      one side of a model, as its architecture describes it
adaptive    adaptive softmax and input
presets     configurations by the names that people use
specs       what a model keeps of a source and of each hypothesis, as executors know it
graph_io    the names and types of a step graph's inputs
recipes     what a graph's weights are made of
weights     weights as they are stored
tensors     files of tensors, written piece by piece and mapped
tables      constant tables: positions, timing
shortlist   the target tokens that a source, and a target language, makes likely
engines     TensorRT's engines: where they lie, and whether one fits
json_file   JSON in files from outside
strict      dataclasses from objects of JSON
folder      replace a folder as a whole
"""
