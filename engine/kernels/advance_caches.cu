// The start of a step of models with caches: each hypothesis takes the writers of its parent, which itself wrote the column
// before the new position. Reference: engine.executors.history.Caches.advance, for the columns before the position.
//
// Grid (groups of columns, slots), block of any size. A thread computes a column for all beams, so that it has read all
// writers before it replaces them.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    advance_caches(const Index* parents,    // [slots, beams]
                   const Index* positions,  // [slots]: column of the new position
                   int beams, int columns, int pitch,
                   Index* writers) {  // [slots, beams, pitch], of which the first `columns` may be read
  CONVOY_SHARED(int, room);           // [beams, threads]
  await_inputs();
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), step = static_cast<int>(blockDim.x);
  const Index line = static_cast<Index>(blockIdx.y) * beams;
  if (column >= columns) return;
  int* mine = room + threadIdx.x;
  Index* own = writers + line * pitch + column;
  const Index past = positions[blockIdx.y];  // loaded together with the parents
#pragma unroll 4
  for (int beam = 0; beam < beams; beam++) {
    const Index parent = parents[line + beam], writer = own[parent * pitch];
    mine[beam * step] = static_cast<int>(column + 1 == past ? parent : writer);
  }
  if (column >= past) return;
  for (int beam = 0; beam < beams; beam++) own[static_cast<Index>(beam) * pitch] = mine[beam * step];
}
