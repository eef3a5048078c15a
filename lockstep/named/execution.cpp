#include "lockstep/named/execution.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>

#include "lockstep/base/round_up.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/all_reduce.h"
#include "lockstep/comm/collectives/all_to_all.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/collectives/reduce_scatter.h"
#include "lockstep/named/scaling.h"

namespace lockstep::named {
namespace {

std::shared_ptr<std::byte> allocate(std::size_t bytes) {
  constexpr std::align_val_t ALIGNMENT{64};
  auto* memory = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), ALIGNMENT));
  return {memory, [](std::byte* freed) { ::operator delete(freed, ALIGNMENT); }};
}

bool averages_integers(const Request& request) {
  return request.op == Op::AVERAGE && !is_floating(request.dtype) && !is_complex(request.dtype);
}

ReduceOp reduce_op(const Request& request) {
  switch (request.op) {
    case Op::AVERAGE: return averages_integers(request) ? ReduceOp::SUM : ReduceOp::AVG;
    case Op::MIN: return ReduceOp::MIN;
    case Op::MAX: return ReduceOp::MAX;
    case Op::PRODUCT: return ReduceOp::PRODUCT;
    default: return ReduceOp::SUM;
  }
}

// What is left to do after the sum.
void finish(void* data, std::size_t count, const Request& request, int ranks) {
  if (averages_integers(request)) divide(data, count, request.dtype, ranks);
  scale(data, count, request.dtype, request.postscale);
}

void reduce(const ProcessGroup& group, void* data, std::size_t count, const Request& request) {
  comm::all_reduce(group, data, count, request.dtype, reduce_op(request));
  finish(data, count, request, group.size());
}

// Every rank gathers all ranks' tensors and combines them in the same tree, ((0, 1), (2, 3)).
void adasum(const ProcessGroup& group, void* data, std::size_t count, const Request& request) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t bytes = count * size_of(request.dtype);
  const auto all = allocate(ranks * bytes);
  comm::all_gather(group, data, count, request.dtype, std::vector{std::span(all.get(), ranks * bytes)});
  for (std::size_t step = 1; step < ranks; step *= 2) {
    for (std::size_t r = 0; r + step < ranks; r += 2 * step)
      adasum_pair(all.get() + r * bytes, all.get() + (r + step) * bytes, count, request.dtype);
  }
  if (bytes > 0) std::memcpy(data, all.get(), bytes);
  scale(data, count, request.dtype, request.postscale);
}

void copy(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// Rows of reducescatter: the lower ranks get one more where the number does not divide.
std::size_t rows_of(std::size_t place, std::size_t rows, std::size_t ranks) {
  return rows / ranks + (place < rows % ranks ? 1 : 0);
}

OperationResult& make_result(Operation& operation, std::size_t rows) {
  OperationResult& result = operation.own_result();
  result.shape = operation.request().shape;
  result.shape[0] = static_cast<std::int64_t>(rows);
  const auto row = static_cast<std::size_t>(operation.request().row()) * size_of(operation.request().dtype);
  result.memory = allocate(rows * row);
  return result;
}

// One span for each number of rows, one behind the other.
template <typename Byte>
std::vector<std::span<Byte>> parts_of(Byte* memory, const std::vector<std::size_t>& rows,
                                      std::size_t row_bytes) {
  std::vector<std::span<Byte>> parts;
  for (const std::size_t count : rows) {
    parts.emplace_back(memory, count * row_bytes);
    memory += count * row_bytes;
  }
  return parts;
}

std::size_t row_bytes_of(const Request& request) {
  return static_cast<std::size_t>(request.row()) * size_of(request.dtype);
}

std::size_t sum_of(const std::vector<std::size_t>& rows) {
  std::size_t sum = 0;
  for (const std::size_t count : rows) sum += count;
  return sum;
}

}  // namespace

void Execution::run(const Batch& batch, const Operations& operations) {
  const Response& first = batch.responses.front();
  const Time begin = now();
  switch (first.request().kind) {
    case Kind::ALLREDUCE:
      batch.is_fused() ? allreduce_fused(batch, operations)
                       : allreduce_alone(batch, operations.front().get());
      break;
    case Kind::ALLGATHER: allgather(first, *operations.front()); break;
    case Kind::BROADCAST: broadcast(first, *operations.front()); break;
    case Kind::ALLTOALL: alltoall(first, *operations.front()); break;
    case Kind::REDUCESCATTER: reducescatter(first, *operations.front()); break;
    default: return;  // BARRIER: that all ranks have announced it is all there is to do
  }
  if (timeline_.is_on()) note(batch, upper_case(name_of(first.request().kind)), begin);
}

void Execution::note(const Batch& batch, std::string_view phase, Time begin) {
  if (!timeline_.is_on()) return;
  const Time end = now();
  for (const Response& response : batch.responses) timeline_.span(response.request().name, phase, begin, end);
}

std::byte* Execution::buffer(const ProcessGroup& group, int set, std::size_t bytes) {
  constexpr std::size_t STEP = std::size_t{1} << 20U;
  Buffer& mine = buffers_[set];
  if (mine.bytes < bytes) {
    mine.memory.reset();
    mine.bytes = round_up(bytes, STEP);
    mine.memory = group.allocate_shared(mine.bytes);
  }
  return static_cast<std::byte*>(mine.memory.get());
}

void Execution::allreduce_alone(const Batch& batch, Operation* operation) {
  const Request& request = batch.request();
  const ProcessGroup group = sets_.group(request.process_set);
  const auto count = static_cast<std::size_t>(request.elements());
  if (operation == nullptr) {
    std::byte* const zeros = buffer(group, request.process_set, request.bytes());
    std::memset(zeros, 0, request.bytes());
    return reduce(group, zeros, count, request);
  }
  copy(operation->output(), operation->input(), request.bytes());
  scale(operation->output(), count, request.dtype, request.prescale);
  const Time begin = now();
  request.op == Op::ADASUM ? adasum(group, operation->output(), count, request)
                           : reduce(group, operation->output(), count, request);
  note(batch, "REDUCE", begin);
}

void Execution::allreduce_fused(const Batch& batch, const Operations& operations) {
  const Request& request = batch.request();
  const ProcessGroup group = sets_.group(request.process_set);
  std::byte* const memory = buffer(group, request.process_set, batch.bytes);
  Time begin = now();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Request& one = batch.responses[i].request();
    std::byte* const place = memory + batch.offsets[i];
    if (operations[i] == nullptr) {
      std::memset(place, 0, one.bytes());
      continue;
    }
    copy(place, operations[i]->input(), one.bytes());
    scale(place, static_cast<std::size_t>(one.elements()), one.dtype, one.prescale);
  }
  note(batch, "MEMCPY_IN_FUSION_BUFFER", begin);
  begin = now();
  reduce(group, memory, batch.bytes / size_of(request.dtype), request);
  note(batch, "REDUCE", begin);
  begin = now();
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i] != nullptr)
      copy(operations[i]->output(), memory + batch.offsets[i], batch.responses[i].request().bytes());
  }
  note(batch, "MEMCPY_OUT_FUSION_BUFFER", begin);
}

void Execution::allgather(const Response& response, Operation& operation) {
  const Request& own = operation.request();
  std::vector<std::size_t> rows;
  for (const auto& request : response.agreement->requests)
    rows.push_back(static_cast<std::size_t>(request->shape[0]));
  const OperationResult& result = make_result(operation, sum_of(rows));
  comm::all_gather(sets_.group(own.process_set), operation.input(), static_cast<std::size_t>(own.elements()),
                   own.dtype,
                   parts_of(static_cast<std::byte*>(result.memory.get()), rows, row_bytes_of(own)));
}

void Execution::broadcast(const Response& response, Operation& operation) {
  const Request& request = response.request();
  const ProcessGroup group = sets_.group(request.process_set);
  if (sets_.all().rank() == request.root) copy(operation.output(), operation.input(), request.bytes());
  comm::broadcast(group, operation.output(), static_cast<std::size_t>(request.elements()), request.dtype,
                  request.root);
}

void Execution::alltoall(const Response& response, Operation& operation) {
  const Request& own = operation.request();
  const ProcessGroup group = sets_.group(own.process_set);
  std::vector<std::size_t> received;
  for (const auto& request : response.agreement->requests)
    received.push_back(static_cast<std::size_t>(request->splits[static_cast<std::size_t>(group.rank())]));
  OperationResult& result = make_result(operation, sum_of(received));
  result.received_splits.assign(received.begin(), received.end());
  const std::vector<std::size_t> sent(own.splits.begin(), own.splits.end());
  comm::all_to_all(group, own.dtype,
                   {parts_of(static_cast<const std::byte*>(operation.input()), sent, row_bytes_of(own)),
                    parts_of(static_cast<std::byte*>(result.memory.get()), received, row_bytes_of(own))});
}

void Execution::reducescatter(const Response& response, Operation& operation) {
  const Request& request = response.request();
  const ProcessGroup group = sets_.group(request.process_set);
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::size_t> rows;
  for (std::size_t place = 0; place < ranks; ++place)
    rows.push_back(rows_of(place, static_cast<std::size_t>(request.shape[0]), ranks));
  const std::size_t mine = rows[static_cast<std::size_t>(group.rank())];
  const OperationResult& result = make_result(operation, mine);
  const void* input = operation.input();
  if (request.prescale != 1.0) {
    std::byte* const scaled = buffer(group, request.process_set, request.bytes());
    copy(scaled, input, request.bytes());
    scale(scaled, static_cast<std::size_t>(request.elements()), request.dtype, request.prescale);
    input = scaled;
  }
  const std::size_t count = mine * static_cast<std::size_t>(request.row());
  comm::reduce_scatter(group, {result.memory.get(), count, request.dtype},
                       parts_of(static_cast<const std::byte*>(input), rows, row_bytes_of(request)),
                       reduce_op(request));
  finish(result.memory.get(), count, request, group.size());
}

}  // namespace lockstep::named
