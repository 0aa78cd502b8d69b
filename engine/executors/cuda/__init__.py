"""Steps of model and search as CUDA graphs: plain torch with our kernels.

executor          one lane of a model in torch
int8              models with weights of 8 bits
captured_slots    slots with arrays at fixed addresses, so that graphs can capture them
stepper           steps of a lane as CUDA graphs
step_kernels      a plain step of model and search by kernels
search_kernels    calls of the search kernels on the arrays of a search
changes           snapshots, moves and placements between two steps, launched together
snapshots         hypotheses of finished slots and the state of running ones, as the host reads them
placing           encoded rows and initial search states of requests
shortlists        allowed tokens of each slot, on the device
copies            plans of the kernel that places, moves and reads slots
encoders          encoding in padded batches of a few sizes, each a CUDA graph
packed            encoding of sources packed one behind the other
graphs            cache of captured graphs
streams           streams, events and copies of a device
"""
