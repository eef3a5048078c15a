// What the stand-in for NCCL does in a stream: one call, or the calls of one group together.
//
// A launch waits for its turn in each of its communicators. Then all its sends and receives go on side by
// side, piece by piece, so that their order within the group is of no consequence; then its collectives, one
// after the other. Whatever travels between two ranks begins with a Tag that says which call it belongs to.
// Where that is not the call that the receiver makes, NCCL may hang or give wrong numbers; here the
// receiver's operation never ends, and ncclGetLastError() says why.
//
// A collective is an exchange, a sum in the order of the ranks, and another exchange:
//   all_reduce      everybody's slice r to rank r; rank r's sum to everybody reduce everything to the root;
//                   sum
//   reduce_scatter  everybody's slice r to rank r; sum broadcast, all_gather one exchange
// A send has ended when its peer has taken it all. (NCCL may end a small one earlier.)
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/comm/backends/nccl/api.h"
#include "tests/nccl/stand_in_comm.h"
#include "tests/nccl/stand_in_orders.h"

namespace lockstep::nccl::stand_in {

struct Operation {
  Verb verb = Verb::ALL_REDUCE;
  const char* input = nullptr;
  char* output = nullptr;
  std::size_t count =
      0;  // as NCCL counts: of all_gather what one rank gives, of reduce_scatter what one rank gets
  DataType type = INT8;
  RedOp op = SUM;
  int peer = 0;  // or the root
  std::shared_ptr<Communicator> comm;
  Order order;  // what it is told to do wrong

  bool is_point_to_point() const { return verb == Verb::SEND || verb == Verb::RECV; }
};

class Launch {
 public:
  // Takes a turn in each communicator.
  explicit Launch(std::vector<Operation> operations);
  void run() const;

 private:
  std::vector<Operation> operations_;
  std::vector<std::pair<std::shared_ptr<Communicator>, std::uint64_t>> turns_;
};

}  // namespace lockstep::nccl::stand_in
