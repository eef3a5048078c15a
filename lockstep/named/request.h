// Request: one rank's call of an operation that ranks match by its name, as Horovod does. The order of calls
// does not matter: a name belongs together with the same name on the other ranks.
//
//   named::Request request{.kind = named::Kind::ALLREDUCE, .name = "grad.conv1", .dtype = DType::FLOAT32};
//   request.shape = {64, 3, 7, 7};
//   describe(request);                    // "allreduce of float32[64, 3, 7, 7], average"
//
// The requests of one name must agree: in kind, dtype, operator, root, factors and shape. Where ranks may
// differ in the first dimension (ALLGATHER, ALLTOALL), the other dimensions must agree.
//
// Wire form: encode() and decode(). Ranks that share a machine architecture and a build exchange it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/dtype.h"
#include "lockstep/base/visibility.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC named {

enum class Kind : std::uint8_t {
  ALLREDUCE,
  ALLGATHER,
  BROADCAST,
  ALLTOALL,
  REDUCESCATTER,
  BARRIER,
  JOIN,
  ADD_PROCESS_SET,     // shape: its ranks
  REMOVE_PROCESS_SET,  // root: its id
};
inline constexpr int KIND_COUNT = 9;
std::string_view name_of(Kind kind);  // "allreduce"

// With Horovod's numbers.
enum class Op : std::uint8_t { AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT };
inline constexpr int OP_COUNT = 6;
std::string_view name_of(Op op);  // "average"

inline constexpr int GLOBAL_PROCESS_SET = 0;

struct Request {
  Kind kind = Kind::ALLREDUCE;
  std::string name;
  int process_set = GLOBAL_PROCESS_SET;
  DType dtype = DType::UINT8;
  Op op = Op::AVERAGE;     // ALLREDUCE, REDUCESCATTER
  int root = 0;            // BROADCAST: a rank of the job
  double prescale = 1.0;   // ALLREDUCE, REDUCESCATTER: multiplies the input
  double postscale = 1.0;  // and the result
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> splits = {};  // ALLTOALL: the rows for each rank of the set
  std::string group = {};                 // of operations that run together or not at all; empty: none
  int group_size = 0;

  bool operator==(const Request&) const = default;
  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  std::int64_t row() const;  // elements of one entry of the first dimension
};

// Where the request was found in the cache of agreements (response_cache.h).
struct Agreement;
struct CachedAgreement {
  std::size_t slot = 0;
  std::shared_ptr<const Agreement> agreement;  // null: it was not
};

std::string describe(const Request& request);

// The words for everything in which the two may not differ and do: "shape, operator". Empty if they agree.
std::string differences(const Request& a, const Request& b);

// Appends the bytes of the request.
void encode(const Request& request, std::string& bytes);
// All requests in the bytes, in order. Throws InternalError for bytes that encode() did not write.
std::vector<std::shared_ptr<const Request>> decode(std::string_view bytes);

}  // namespace named
}  // namespace lockstep
