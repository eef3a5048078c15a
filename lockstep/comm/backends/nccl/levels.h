// How sums over NCCL are taken in two levels, in each machine and between machines: a table that is made
// first and then carried out. Pure.
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
// all_reduce  a reduce_scatter in each machine, an all_reduce of its part by every rank there with those of
//             the same place in the other machines, all at the same time, and an all_gather in each machine.
//             So a rank's device exchanges 1 / L of the bytes with other machines, L ranks on each. While one
//             segment is between machines, others are within.
// The rest    is one stage of all ranks: the other verbs, what is left over when the elements are not a
//             multiple of L, and everything where there is no grid.
// Order       All ranks have the same stages in the same order, so that devices that can do only one thing at
//             a time do not wait for each other in a circle.
// Averages    are averages of averages: every machine has as many ranks.
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

// A rank's neighbours, where several machines have equally many ranks, more than one.
struct Grid {
  std::vector<int> node;    // the ranks of its machine
  std::vector<int> across;  // those that have its place in each machine
};
std::optional<Grid> grid_of(const algorithms::Nodes& nodes, int rank);

enum class Level {
  ALL,
  NODE,
  ACROSS
};  // of which ranks a communicator is: all, those of Grid::node, of Grid::across
inline constexpr std::size_t LEVELS = 3;

// Begins when the one before it of the same segment is done. The steps of one wait for each other.
struct Stage {
  Level level = Level::ALL;
  std::size_t segment = 0;
  std::vector<Step> steps;
};

inline constexpr std::size_t SEGMENT_BYTES = std::size_t{8} << 20;  // of the whole, about

std::vector<Stage> stages_of(const Request& request, int rank, int size, const std::optional<Grid>& grid,
                             std::size_t segment_bytes = SEGMENT_BYTES);
std::string to_text(const std::vector<Stage>& stages);

}  // namespace lockstep::nccl
