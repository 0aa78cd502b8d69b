// One decoding step of a simpler simple recurrent unit (Kim et al. 2019):
//   c = f * c' + (1 - f) * candidate, f = sigmoid(gate);  y = relu(c)
// c' is the cell of the hypothesis that is continued, found through `index`; cells are never reordered.
// Reference: reference.ssru_step. Cells are float for every type of elements.
//
// Grid (chunks of dim, slots), block of any size. A thread computes one channel of all beams of a slot, so that it has read
// all of them before the new cells replace the ring's only column.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    ssru_step(const Element* candidates, const Element* gates,  // [slots, beams, dim]
              const Index* index,  // [slots, beams]: rows of ring [slots * beams, dim]
              int beams, int dim, int append, float* ring,
              float* cells,   // [slots, beams, dim]
              Element* y) {   // [slots, beams, dim]
  await_inputs();
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= dim) return;
  const Index first = static_cast<Index>(blockIdx.y) * beams;
  for (Index row = first; row < first + beams; row++) {
    const Index place = row * dim + at;
    const float forget = 1.0f / (1.0f + expf(-widen(gates[place])));
    const float cell = fmaf(forget, ring[index[row] * dim + at], (1.0f - forget) * widen(candidates[place]));
    cells[place] = cell;
    narrow(cell < 0.0f ? 0.0f : cell, y[place]);
  }
  if (append)
    for (Index row = first; row < first + beams; row++) ring[row * dim + at] = cells[row * dim + at];
}
