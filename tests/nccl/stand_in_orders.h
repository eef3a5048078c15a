// What the variable NCCL_STAND_IN tells the stand-in for NCCL to do wrong, so that tests see how its caller
// takes that.
//
//   NCCL_STAND_IN=fail:all_reduce:3:1            the 3rd ncclAllReduce on rank 1 returns ncclInternalError
//   NCCL_STAND_IN=late:broadcast:1:*:300,count:3    two orders
//
//   orders     = order *("," order)
//   order      = ("fail" | "async" | "hang" | "progress") ":" operation ":" nth [":" rank]
//              | "late" ":" operation ":" nth ":" rank ":" milliseconds
//              | "init" ":" ("fail" | "hang") [":" rank]
//              | "count" ":" number
//              | "version" ":" number
//              | "network"
//   operation  = "all_reduce" | "broadcast" | "reduce" | "all_gather" | "reduce_scatter" | "send" | "recv"
//   rank       = number | "*"                    of the communicator; none is "*", which is every rank
//
//   fail       the call returns ncclInternalError and starts nothing
//   async      the call succeeds, the operation never ends, ncclCommGetAsyncError says ncclRemoteError
//   hang       the call succeeds, the operation never ends, no error is reported
//   late       the operation begins that many milliseconds later than it could
//   progress   the call returns ncclInProgress, ncclCommGetAsyncError says it twice and then success; only
//              then is the operation on its stream (a communicator that is not blocking; NCCL does this when
//              it must first connect to a peer)
//   init:fail  the communicator gets ncclSystemError instead of peers
//   init:hang  the communicator never comes into being
//   count      what ncclCommCount says
//   version    what ncclGetVersion says, 22105 without it
//   network    a send ends when NCCL has its data, as over sockets; without it when the peer has taken it, as
//              in a machine
//
// `nth` counts from 1 the calls of that operation on that rank in this process, over all communicators. The
// variable is read again whenever a version, an id or a communicator is asked for; a new text starts the
// counting anew.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::nccl::stand_in {

enum class Verb : unsigned { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };
inline constexpr std::array<std::string_view, 7> VERB_NAMES{
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "send", "recv"};
inline std::string name_of(Verb verb) { return std::string(VERB_NAMES[static_cast<std::size_t>(verb)]); }

enum class Fault { NONE, FAIL, ASYNC, HANG, PROGRESS, LATE, INIT_FAIL, INIT_HANG };

struct Order {
  Fault fault = Fault::NONE;
  Verb verb = Verb::ALL_REDUCE;  // not of INIT_...
  int nth = 0;                   // not of INIT_...
  std::optional<int> rank;       // none: every rank
  int milliseconds = 0;          // of LATE

  bool operator==(const Order&) const = default;
};

struct Orders {
  std::vector<Order> faults;
  std::optional<int> count;
  int version = 22105;
  bool is_network = false;
};

// Throws std::invalid_argument, which quotes the order that is none.
Orders parse_orders(std::string_view text);

// The orders of this process and how far their counting is. Threads: any.
class OrderBook {
 public:
  static OrderBook& of_process();

  // Looks at the variable again; "" or what is wrong with it.
  std::string read();
  Orders orders();
  Fault at_init(int rank);
  // Of the call that is made now, which is counted; its order's nth is its number.
  Order next(Verb verb, int rank);

 private:
  std::mutex mutex_;
  std::string text_;
  Orders orders_;
  std::map<std::pair<Verb, int>, int> calls_;
};

}  // namespace lockstep::nccl::stand_in
