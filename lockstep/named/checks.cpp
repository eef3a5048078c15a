#include "lockstep/named/checks.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"

namespace lockstep::named {
namespace {

template <typename... Parts> [[noreturn]] void refuse(const Request& request, const Parts&... reason) {
  throw InvalidArgument(str(name_of(request.kind), " ", in_quotes(request.name), ": ", reason...));
}

bool moves_data(Kind kind) { return kind < Kind::BARRIER; }

void check_op(const Request& request, std::size_t ranks) {
  if (request.op == Op::AVERAGE && request.dtype == DType::BOOL) refuse(request, "bool has no average");
  if (is_complex(request.dtype) && request.op != Op::AVERAGE && request.op != Op::SUM)
    refuse(request, "complex numbers have sum and average alone");
  if (request.kind == Kind::REDUCESCATTER && request.op != Op::AVERAGE && request.op != Op::SUM)
    refuse(request, "reducescatter has sum and average alone, not ", name_of(request.op));
  if (request.op != Op::ADASUM) return;
  if (!is_floating(request.dtype))
    refuse(request, "Adasum is for floating point, not ", lockstep::name_of(request.dtype));
  if ((ranks & (ranks - 1)) != 0)
    refuse(request, "Adasum needs a power of two of ranks, and there are ", ranks);
}

void check_splits(Request& request, std::size_t ranks) {
  const std::int64_t rows = request.shape[0];
  if (request.splits.empty()) {
    const auto parts = static_cast<std::int64_t>(ranks);
    if (rows % parts != 0)
      refuse(request, "without splits, the first dimension must divide by the ", ranks, " ranks, and is ",
             rows);
    request.splits.assign(ranks, rows / parts);
  }
  if (request.splits.size() != ranks)
    refuse(request, "splits must have one number for each of the ", ranks, " ranks, and have ",
           request.splits.size());
  const bool negative =
      std::any_of(request.splits.begin(), request.splits.end(), [](auto n) { return n < 0; });
  const auto sum = std::accumulate(request.splits.begin(), request.splits.end(), std::int64_t{0});
  if (negative || sum != rows)
    refuse(request, "splits must be rows that add up to the first dimension, ", rows, "; they add up to ",
           sum);
}

void check_new_set(const Request& request, const ProcessSets& sets) {
  const std::vector<int> ranks(request.shape.begin(), request.shape.end());
  const bool ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !ascending || ranks.front() < 0 || ranks.back() >= sets.all().size())
    refuse(request, "a process set has different ranks of the job (0 to ", sets.all().size() - 1,
           ") in ascending order");
  if (const auto there = sets.find(ranks))
    refuse(request, "process set ", *there, " has these ranks already");
}

}  // namespace

void check_memory(const Request& request, const void* input, const void* output) {
  if (!moves_data(request.kind) || request.bytes() == 0) return;
  const bool has_output = request.kind == Kind::ALLREDUCE || request.kind == Kind::BROADCAST;
  if (input == nullptr || (has_output && output == nullptr))
    refuse(request, "it has ", request.elements(), " elements and no memory");
  for (const void* memory : {input, output}) {
    const std::size_t unit = is_complex(request.dtype) ? size_of(request.dtype) / 2 : size_of(request.dtype);
    if (reinterpret_cast<std::uintptr_t>(memory) % unit != 0) refuse(request, "its memory is not aligned");
  }
}

void check(Request& request, const ProcessSets& sets) {
  if (request.kind == Kind::ADD_PROCESS_SET) return check_new_set(request, sets);
  if (request.kind == Kind::REMOVE_PROCESS_SET) {
    if (request.root == GLOBAL_PROCESS_SET) refuse(request, "the set of all ranks stays");
    (void)sets.ranks(request.root);
    return;
  }
  const ProcessGroup group = sets.group(request.process_set);
  const std::vector<int>& ranks = group.ranks();
  if (group.rank() < 0)
    refuse(request, "rank ", sets.all().rank(), " is not in process set ", request.process_set, ", whose ",
           rank_list(ranks), " alone may call it");
  if (!moves_data(request.kind)) return;
  if (!shape_bytes(request.shape, size_of(request.dtype))) refuse(request, "its shape cannot be");
  if (request.kind == Kind::BROADCAST && std::find(ranks.begin(), ranks.end(), request.root) == ranks.end())
    refuse(request, "root ", request.root, " is not one of ", rank_list(ranks));
  if (request.kind != Kind::ALLREDUCE && request.kind != Kind::BROADCAST && request.shape.empty())
    refuse(request, "it needs at least one dimension, and a scalar has none");
  if (request.kind == Kind::ALLREDUCE || request.kind == Kind::REDUCESCATTER) check_op(request, ranks.size());
  if (request.kind == Kind::ALLTOALL) check_splits(request, ranks.size());
}

}  // namespace lockstep::named
