// Schedule: what one rank does in one collective, as a table that is complete before the first byte moves.
// For backends that only have messages (tcp); the tables know nothing of sockets, the code that follows them
// nothing of algorithms.
//
//   const Schedule mine = make_schedule(
//       {.verb = Verb::BROADCAST, .rank = 0, .size = 3, .element = 4, .count = 10});
//   std::cout << to_text(mine);          // step 0
//                                        //   send    input[0,40) -> rank 2
//                                        //   send    input[0,40) -> rank 1
//
// A step      first makes its copies, then sends, receives and works within its node at once, combining
//             meanwhile what earlier steps have received, and when all of that is over combines. The next
//             step begins after that. Buffers may therefore be used again from step to step. The transfers of
//             one that is `early` may begin before that: beside those of the step before it, once that has
//             combined what it does meanwhile; so a connection does not rest between two steps.
// Labels      A message is known by its collective, sender, receiver and label: two ranks' tables have the
//             same labels, in the same order, and the same bytes for what goes from one to the other.
// Order       combines name all ranks' contributions in rank order, for the one balanced tree of
//             comm/kernels/reduce_kernels.h: every algorithm gives the same bits, and half-precision partial
//             sums are never rounded, because none travel. Between nodes sums do; whether that gives the same
//             bits is what keeps_order() says.
// Pure        The table depends on the arguments alone. Which algorithm is chosen depends only on what all
//             ranks know to be equal (never on one rank's contribution).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep::algorithms {

// Which of a Request's buffers, or the scratch memory that the executor provides.
enum class Area : std::uint8_t { INPUT, OUTPUT, INPUTS, OUTPUTS, SCRATCH };

struct Place {
  Area area = Area::INPUT;
  std::size_t offset = 0;  // bytes
  int index = 0;           // of INPUTS and OUTPUTS
};

struct Transfer {
  int peer = 0;
  std::uint32_t label = 0;
  Place place;
  std::size_t bytes = 0;
  std::size_t whole =
      0;  // of the contribution that this is a part of; the receiver checks that it expects as much
};

struct Copy {
  Place from;
  Place to;
  std::size_t bytes = 0;
};

struct Combine {
  std::vector<Place> inputs;  // by rank
  Place output;
  std::size_t bytes = 0;
  bool of_nodes =
      false;  // the inputs are sums, by node: an average divides by the number of ranks, not of inputs
};

// A collective among the ranks of this rank's node, through the memory that they share. The ranks of a node
// have the same ones in the same order. `parts` are by rank of the node.
//
//   REDUCE_SCATTER  combines all ranks' buffers; the sum of this rank's part is written to `result`, which
//                   may be that part
//   ALL_GATHER      this rank's part to all; the others' parts into this rank's buffer
//   BROADCAST       one part: from the root, a rank of the node, to all
struct Local {
  struct Part {
    Place place;
    std::size_t bytes = 0;
  };
  Verb verb = Verb::REDUCE_SCATTER;
  std::vector<Part> parts;
  Part result;
  int root = 0;
};

struct Step {
  bool early = false;  // has no copies and nothing within the node
  std::vector<Copy> copies;
  std::vector<Local> locals;  // one after the other, beside the transfers
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<Combine> meanwhile;
  std::vector<Combine> combines;
};

struct Schedule {
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
};

// The ranks of each node, which share memory; ascending, nodes by their first rank.
using Nodes = std::vector<std::vector<int>>;

// A collective of one rank. Counts are elements, sizes bytes; see the table in comm/backend.h for which verb
// has which.
struct Shape {
  Verb verb = Verb::BARRIER;
  int rank = 0;
  int size = 1;
  int root = 0;
  std::size_t element = 1;  // bytes of one
  std::size_t count = 0;
  std::vector<std::size_t> inputs;   // bytes, by rank
  std::vector<std::size_t> outputs;  // bytes, by rank
  Nodes nodes;                       // empty: no two ranks share memory
};

// Where a rank is.
struct Home {
  std::size_t node = 0;
  std::size_t local = 0;  // its number in its node
};
Home home_of(const Nodes& nodes, int rank);
std::size_t smallest_node(const Nodes& nodes);  // its ranks

// Whether the tree over the nodes of the trees over their ranks is the tree over all ranks: every node has
// the same power of two of ranks, in a row; the last one may have fewer.
bool keeps_order(const Nodes& nodes);

// SEND and RECV have none: InternalError.
Schedule make_schedule(const Shape& shape);

std::string to_text(const Schedule& schedule);

// ---- for algorithms
struct Slice {
  std::size_t offset = 0;  // bytes
  std::size_t bytes = 0;
};
// Part `index` of `parts` nearly equal parts of `bytes` bytes that begin at multiples of 64, some empty if
// there is little.
Slice slice_of(std::size_t bytes, int parts, int index);

// At most this many bytes of each rank are combined in one step, which bounds scratch memory and how long a
// combine takes.
inline constexpr std::size_t SEGMENT = std::size_t{4} << 20U;
// Up to this size the fewest steps win, above it the fewest bytes.
inline constexpr std::size_t SMALL = std::size_t{32} << 10U;

Schedule barrier(const Shape& shape);    // dissemination, log2(size) steps
Schedule broadcast(const Shape& shape);  // binomial tree; large: parts to all, which pass them on to all
// All to all, one step; large (more than a segment, if there are two ranks): each combines a part, then
// gather.
Schedule all_reduce(const Shape& shape);
// Where ranks share memory; see between_nodes.cpp, broadcast_between_nodes.cpp, reduce_between_nodes.cpp and
// parts_between_nodes.cpp.
Schedule all_reduce_between_nodes(const Shape& shape);
Schedule broadcast_between_nodes(const Shape& shape);
Schedule reduce_between_nodes(const Shape& shape);
Schedule all_gather_between_nodes(const Shape& shape);
Schedule reduce_scatter_between_nodes(const Shape& shape);
Schedule reduce(const Shape& shape);          // everybody to the root
Schedule reduce_scatter(const Shape& shape);  // everybody's part to its owner
Schedule exchange(const Shape& shape);        // all_gather, gather, scatter, all_to_all: directly, one step

}  // namespace lockstep::algorithms
