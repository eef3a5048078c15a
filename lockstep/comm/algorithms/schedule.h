// Schedule: the actions of one rank in one collective, as a table that is complete before the first byte
// moves. It is for backends that have only messages (tcp). The tables know nothing of sockets, and the code
// that executes them knows nothing of algorithms.
//
//   const Schedule mine = make_schedule(
//       {.verb = Verb::BROADCAST, .rank = 0, .size = 3, .element = 4, .count = 10});
//   std::cout << to_text(mine);          // step 0
//                                        //   send    input[0,40) -> rank 2
//                                        //   send    input[0,40) -> rank 1
//
// A step      first makes its copies. Then it sends, receives and runs its local parts at the same time, and
//             runs the combines of `meanwhile`, whose inputs earlier steps have received. When all of these
//             are over, it runs its other combines. The next step begins after that, so buffers can be reused
//             from step to step. The transfers of an `early` step may begin sooner: beside those of the step
//             before it, once that step has run its `meanwhile`. So a connection does not rest between two
//             steps.
// Labels      A message is identified by collective, sender, receiver and label. The tables of sender and
//             receiver have the same labels, in the same order, and the same number of bytes for each message
//             between them.
// Order       A combine names all ranks' contributions in rank order, for the one balanced tree of
//             comm/kernels/reduce_kernels.h. So every algorithm gives the same bits. Partial sums do not
//             travel between ranks, so none is rounded to half precision. Between nodes sums do travel;
//             keeps_order() says whether that gives the same bits.
// Pure        The table depends on the arguments alone. The choice of algorithm depends only on facts that
//             are equal on all ranks (never on one rank's contribution).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"

namespace lockstep::algorithms {

// One of a Request's buffers, or the scratch memory that the executor provides.
enum class Area : std::uint8_t { INPUT, OUTPUT, INPUTS, OUTPUTS, SCRATCH };

struct Place {
  Area area = Area::INPUT;
  std::size_t offset = 0;  // in bytes
  int index = 0;           // entry of INPUTS or OUTPUTS
};

struct Transfer {
  int peer = 0;
  std::uint32_t label = 0;
  Place place;
  std::size_t bytes = 0;
  // size of the contribution that this message is a part of; the receiver checks that it expects the same
  std::size_t whole = 0;
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
  // the inputs are sums, one per node: an average divides by the number of ranks, not of inputs
  bool of_nodes = false;
};

// A collective among the ranks of this rank's node, through the memory that they share. All ranks of a node
// have the same local collectives in the same order. `parts` are by rank of the node.
//
//   REDUCE_SCATTER  combines all ranks' buffers. The sum of this rank's part is written to `result`, which
//                   may be that part
//   ALL_GATHER      sends this rank's part to all ranks, and receives their parts into this rank's buffer
//   BROADCAST       sends one part from the root, a rank of the node, to all ranks
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
  bool early = false;  // its transfers may begin early; such a step has no copies and no locals
  std::vector<Copy> copies;
  std::vector<Local> locals;  // run one after the other, beside the transfers
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  std::vector<Combine> meanwhile;
  std::vector<Combine> combines;
};

struct Schedule {
  std::vector<Step> steps;
  std::size_t scratch_bytes = 0;
};

// The ranks of each node, which share memory. Ranks are ascending, and nodes are ordered by their first rank.
using Nodes = std::vector<std::vector<int>>;

// A collective from the view of one rank. Counts are elements, sizes are bytes. The table in comm/backend.h
// says which fields a verb has.
struct Shape {
  Verb verb = Verb::BARRIER;
  int rank = 0;
  int size = 1;
  int root = 0;
  std::size_t element = 1;  // size of an element in bytes
  std::size_t count = 0;
  std::vector<std::size_t> inputs;   // in bytes, by rank
  std::vector<std::size_t> outputs;  // in bytes, by rank
  Nodes nodes;                       // empty if no two ranks share memory
};

// The place of a rank.
struct Home {
  std::size_t node = 0;
  std::size_t local = 0;  // its index in its node
};
Home home_of(const Nodes& nodes, int rank);
std::size_t smallest_node(const Nodes& nodes);  // number of ranks of the smallest node

// Returns whether a tree over the nodes' sums gives the same tree as one over all ranks. That is so if every
// node has the same power of two of ranks, numbered in a row; the last node may have fewer.
bool keeps_order(const Nodes& nodes);

// Throws InternalError for SEND and RECV, which have no schedule.
Schedule make_schedule(const Shape& shape);

std::string to_text(const Schedule& schedule);

// ---- called by algorithms
struct Slice {
  std::size_t offset = 0;  // in bytes
  std::size_t bytes = 0;
};
// Cuts `bytes` bytes into `parts` nearly equal parts that begin at multiples of 64, and returns part `index`.
// Some parts are empty if there are few bytes.
Slice slice_of(std::size_t bytes, int parts, int index);

// The most bytes of each rank that one step combines. It bounds the scratch memory and the duration of a
// combine.
inline constexpr std::size_t SEGMENT = std::size_t{4} << 20U;
// Up to this size the algorithm with the fewest steps is fastest, above it the one with the fewest bytes.
inline constexpr std::size_t SMALL = std::size_t{32} << 10U;

Schedule barrier(const Shape& shape);  // dissemination, log2(size) steps
// binomial tree; large: the root sends a part to each rank, which passes it on to all others
Schedule broadcast(const Shape& shape);
// Small: every rank sends all to every other, in one step. Large (for two ranks: more than a segment): each
// rank combines a part, then all gather.
Schedule all_reduce(const Shape& shape);
// Used where ranks share memory. See between_nodes.cpp, broadcast_between_nodes.cpp, reduce_between_nodes.cpp
// and parts_between_nodes.cpp.
Schedule all_reduce_between_nodes(const Shape& shape);
Schedule broadcast_between_nodes(const Shape& shape);
Schedule reduce_between_nodes(const Shape& shape);
Schedule all_gather_between_nodes(const Shape& shape);
Schedule reduce_scatter_between_nodes(const Shape& shape);
Schedule reduce(const Shape& shape);          // all ranks send to the root
Schedule reduce_scatter(const Shape& shape);  // all ranks send each part to its owner
Schedule exchange(const Shape& shape);        // all_gather, gather, scatter, all_to_all: directly, one step

}  // namespace lockstep::algorithms
