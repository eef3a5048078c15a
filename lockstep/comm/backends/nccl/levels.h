// Takes sums over NCCL in two levels, in each machine and between machines: first a table, which is then
// executed. Pure.
//
//   const std::optional<Grid> grid = grid_of({{0, 1}, {2, 3}}, rank);     // two machines of two ranks
//   std::cout << to_text(stages_of(request, rank, size, grid));  // all_reduce(float32[4000000]), rank 0:
//  //   segment 0  node    ncclReduceScatter 1048576
//  //   segment 0  across  ncclAllReduce 1048576
//  //   segment 1  node    ncclReduceScatter 951424
//  //   segment 1  across  ncclAllReduce 951424
//  //   segment 0  node    ncclAllGather 1048576
//  //   segment 1  node    ncclAllGather 951424
//
// all_reduce  is a reduce_scatter in each machine, then an all_reduce between machines, then an all_gather in
//             each machine. In the second stage every rank reduces its part with the ranks at the same place
//             in the other machines, all at the same time. With L ranks on each machine, a device exchanges 1
//             / L of the bytes with other machines. While one segment is between machines, other segments are
//             within.
// The rest    is one stage of all ranks: the other verbs, the elements beyond a multiple of L, and every call
//             where there is no grid.
// Order       All ranks have the same stages in the same order. So devices that execute only one stage at a
//             time do not wait for each other in a circle.
// Averages    are averages of averages, because every machine has the same number of ranks.
//
// The scheme: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, section 4 (SMP clusters).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/schedule.h"
#include "lockstep/comm/backends/nccl/calls.h"

namespace lockstep::nccl {

// The neighbours of a rank, where several machines have the same number of ranks, and more than one.
struct Grid {
  std::vector<int> node;    // the ranks of its machine
  std::vector<int> across;  // the ranks at the same place in each machine
};
std::optional<Grid> grid_of(const algorithms::Nodes& nodes, int rank);

enum class Level {
  ALL,
  NODE,
  ACROSS
};  // the ranks of a communicator: all, those of Grid::node, those of Grid::across
inline constexpr std::size_t LEVELS = 3;

// Begins when the previous stage of its segment is done. The steps of one stage wait for each other.
struct Stage {
  Level level = Level::ALL;
  std::size_t segment = 0;
  std::vector<Step> steps;
};

// approximate size of a segment of the buffer
inline constexpr std::size_t SEGMENT_BYTES = std::size_t{8} << 20;

std::vector<Stage> stages_of(const Request& request, int rank, int size, const std::optional<Grid>& grid,
                             std::size_t segment_bytes = SEGMENT_BYTES);
std::string to_text(const std::vector<Stage>& stages);

}  // namespace lockstep::nccl
