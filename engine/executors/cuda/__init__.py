"""Steps of model and search as CUDA graphs: plain torch with our kernels.

executor          one lane of a model in torch
captured_slots    slots whose arrays stay where they are, so that graphs may hold them
stepper           steps of a lane as CUDA graphs
step_kernels      the search of plain steps by kernels
search_kernels    the kernels of a plain step's search, on its arrays
changes           what is told of slots, moved and placed between two steps, all at once
telling           answers of slots that are done, and the state of others, as the host reads them
placing           requests on their way into slots
copies            what is placed, moved or read of slots, as copies of one kernel
encoders          encoding in padded batches of a few sizes, each a CUDA graph
packed            encoding of sources that lie one behind the other
graphs            captured work: when, how many
streams           streams, events and copies of a device
errors            which errors lose a device
"""
