#include "cli/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"

namespace lockstep::cli {
namespace {

using Floats = std::span<float>;

double microseconds_now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<double> last_of_all_ranks(const ProcessGroup& group, std::vector<double> moments) {
  comm::all_reduce(group, std::span(moments), ReduceOp::MAX);
  return moments;
}

// The buffers of one size: `whole` has the operation's bytes, `part` has a rank's share of them.
struct Buffers {
  std::shared_ptr<void> memory;
  Floats whole, part, second;
};

Buffers make_buffers(const ProcessGroup& group, const BenchSetting& setting, std::size_t count) {
  const std::size_t share = count / static_cast<std::size_t>(group.size());
  const std::size_t floats = 2 * count + share;
  Buffers buffers;
  if (setting.shared) {
    buffers.memory = group.allocate_shared(floats * sizeof(float));
  } else {
    buffers.memory = std::shared_ptr<float[]>(new float[floats]());
  }
  auto* data = static_cast<float*>(buffers.memory.get());
  buffers.whole = {data, count};
  buffers.second = {data + count, count};
  buffers.part = {data + 2 * count, share};
  return buffers;
}

void exchange(const ProcessGroup& group, Floats buffer) {
  const std::span<const float> message = buffer;
  if (group.rank() == 0) comm::send(group, message, 1);
  if (group.rank() == 1) comm::recv(group, buffer, 0);
}

void call(const ProcessGroup& group, Verb verb, const Buffers& b) {
  const bool root = group.rank() == 0;
  const std::span<const float> part = b.part;
  const std::span<const float> whole = b.whole;
  switch (verb) {
    case Verb::BARRIER: comm::barrier(group); break;
    case Verb::BROADCAST: comm::broadcast(group, b.whole, 0); break;
    case Verb::ALL_REDUCE: comm::all_reduce(group, b.whole); break;
    case Verb::REDUCE: comm::reduce(group, b.whole, 0); break;
    case Verb::ALL_GATHER: comm::all_gather(group, part, b.whole); break;
    case Verb::GATHER: comm::gather(group, part, root ? b.whole : Floats(), 0); break;
    case Verb::SCATTER: comm::scatter(group, b.part, root ? whole : std::span<const float>(), 0); break;
    case Verb::REDUCE_SCATTER: comm::reduce_scatter(group, b.part, whole); break;
    case Verb::ALL_TO_ALL: comm::all_to_all(group, whole, b.second); break;
    case Verb::SEND:
    case Verb::RECV: exchange(group, b.whole); break;
  }
}

// Expected first and last element of this rank's result, if every rank wrote rank + 1 everywhere. Empty:
// nothing to check.
std::vector<float> results(const ProcessGroup& group, Verb verb, const Buffers& b) {
  const auto ends = [](Floats x) {
    return x.empty() ? std::vector<float>() : std::vector<float>{x.front(), x.back()};
  };
  const bool root = group.rank() == 0;
  switch (verb) {
    case Verb::ALL_GATHER: return ends(b.whole);
    case Verb::GATHER: return root ? ends(b.whole) : std::vector<float>();
    case Verb::SCATTER:
    case Verb::REDUCE_SCATTER: return ends(b.part);
    case Verb::ALL_TO_ALL: return ends(b.second);
    case Verb::REDUCE: return root ? ends(b.whole) : std::vector<float>();
    case Verb::BROADCAST:
    case Verb::ALL_REDUCE: return ends(b.whole);
    case Verb::SEND: return group.rank() == 1 ? ends(b.whole) : std::vector<float>();
    default: return {};
  }
}

std::vector<float> expected(Verb verb, int ranks) {
  const auto n = static_cast<float>(ranks);
  switch (verb) {
    case Verb::ALL_REDUCE:
    case Verb::REDUCE:
    case Verb::REDUCE_SCATTER: return {n * (n + 1) / 2, n * (n + 1) / 2};
    case Verb::ALL_GATHER:
    case Verb::GATHER:
    case Verb::ALL_TO_ALL: return {1, n};
    default: return {1, 1};
  }
}

void check(const ProcessGroup& group, Verb verb, const Buffers& buffers) {
  const std::vector<float> found = results(group, verb, buffers);
  if (!found.empty() && found != expected(verb, group.size()))
    throw InternalError(
        str("bench: ", name_of(verb), " of ", buffers.whole.size_bytes(), " bytes gave a wrong result"));
}

}  // namespace

BenchRow measure(const ProcessGroup& group, const BenchSetting& setting, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(group.size());
  const std::size_t count = std::max<std::size_t>(bytes / sizeof(float) / ranks, 1) * ranks;
  const Buffers buffers = make_buffers(group, setting, count);
  const std::size_t rounds = rounds_for(count * sizeof(float));
  std::vector<double> starts, ends;
  for (std::size_t round = 0; round < rounds + rounds / 5; ++round) {
    const auto mine = static_cast<float>(group.rank() + 1);
    for (const Floats& buffer : {buffers.whole, buffers.part}) std::fill(buffer.begin(), buffer.end(), mine);
    comm::barrier(group);
    const double start = microseconds_now();
    call(group, setting.verb, buffers);
    if (round < rounds / 5) continue;  // the first rounds warm up
    starts.push_back(start);
    ends.push_back(microseconds_now());
  }
  check(group, setting.verb, buffers);
  starts = last_of_all_ranks(group, starts);
  ends = last_of_all_ranks(group, ends);
  std::vector<double> times;
  for (std::size_t round = 0; round < rounds; ++round) times.push_back(ends[round] - starts[round]);
  std::sort(times.begin(), times.end());
  return {count * sizeof(float), count, times[rounds / 2], times[0], std::nullopt};
}

}  // namespace lockstep::cli
