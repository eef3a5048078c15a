// place_on_node: the machine of a rank and its number there, from what all ranks say of themselves. Pure.
//
//   place_on_node({{"a", 0}, {"a", 1}, {"b", 0}, {"b", 1}}, 3);  // {.local_rank = 1, .local_size = 2,
//                                                                //  .node_rank = 1, .node_count = 2}
//
// Machine     ranks that name the same machine are on one machine. A launcher gives each of its ranks another
//             number, so ranks of one machine with the same number belong to several launchers there. Each
//             launcher counts as a machine of its own, as in torchrun.
// Numbers     machines are numbered by their first rank. A rank without a launcher's number has the number of
//             lower ranks on its machine.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct RankOnMachine {
  std::string machine;
  int local_rank = -1;  // the launcher's number; -1: it gives none
};

struct PlaceOnNode {
  int local_rank = 0;
  int local_size = 1;
  int node_rank = 0;
  int node_count = 1;
};

PlaceOnNode place_on_node(const std::vector<RankOnMachine>& all, int rank);

}  // namespace lockstep
