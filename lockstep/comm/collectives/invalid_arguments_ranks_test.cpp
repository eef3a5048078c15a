// Every invalid argument of every verb has one message, which is the same on every backend, and does not
// change the group.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/ranks.h"

namespace lockstep {
namespace {

// The arguments that a call may use: this rank's place, and buffers of the right sizes.
struct Scene {
  explicit Scene(const ProcessGroup& world) : group(world), ranks(static_cast<std::size_t>(world.size())) {}

  const ProcessGroup& group;
  std::size_t ranks;
  std::vector<float> four = std::vector<float>(4);
  std::vector<float> five = std::vector<float>(5);
  std::vector<float> all = std::vector<float>(4 * ranks);

  std::span<const float> input() const { return four; }
  std::span<float> output() { return four; }
  void* odd() { return reinterpret_cast<std::byte*>(all.data()) + 2; }  // misaligned for float32
  int last() const { return group.size() - 1; }
  std::vector<std::span<std::byte>> parts(std::size_t bytes) const {
    return std::vector<std::span<std::byte>>(ranks, {const_cast<std::byte*>(start()), bytes});
  }
  std::vector<std::span<const std::byte>> const_parts(std::size_t bytes) const {
    return std::vector<std::span<const std::byte>>(ranks, {start(), bytes});
  }

 private:
  const std::byte* start() const { return reinterpret_cast<const std::byte*>(all.data()); }
};

struct InvalidCase {
  std::string verb;
  std::string reason;
  std::function<void(Scene&)> call;
};

const std::string NULL_BUFFER = "the buffer of 4 elements is null";
const std::string MISALIGNED = "the buffer must be aligned to 4 bytes, the alignment of float32";
constexpr std::size_t TOO_MANY = std::numeric_limits<std::size_t>::max() / 4;
const std::string TOO_MANY_TEXT = str(TOO_MANY, " elements are too many");

std::string no_rank(const char* role, int rank, const Scene& scene) {
  if (rank == ANY_SOURCE) return str(role, " -1 is not a rank: only a receive may use ANY_SOURCE");
  return str(role, " ", rank, " is not a rank of the group (0 to ", scene.last(), ")");
}

std::string one_per_rank(const char* role, const Scene& scene, std::size_t there_are) {
  return str("one ", role, " per rank is needed, ", scene.ranks, "; there are ", there_are,
             "; if you passed one buffer, it cannot be cut into parts of the right size");
}

using namespace comm;  // NOLINT(google-build-using-namespace): the table is all calls

std::vector<InvalidCase> buffers() {
  return {
      {"all_reduce", NULL_BUFFER,
       [](Scene& s) { all_reduce(s.group, nullptr, 4, DType::FLOAT32, ReduceOp::SUM); }},
      {"all_reduce", MISALIGNED,
       [](Scene& s) { all_reduce(s.group, s.odd(), 1, DType::FLOAT32, ReduceOp::SUM); }},
      {"all_reduce", TOO_MANY_TEXT,
       [](Scene& s) { all_reduce(s.group, s.four.data(), TOO_MANY, DType::FLOAT32, ReduceOp::SUM); }},
      {"broadcast", NULL_BUFFER, [](Scene& s) { broadcast(s.group, nullptr, 4, DType::FLOAT32, 0); }},
      {"broadcast", MISALIGNED, [](Scene& s) { broadcast(s.group, s.odd(), 1, DType::FLOAT32, 0); }},
      {"broadcast", TOO_MANY_TEXT,
       [](Scene& s) { broadcast(s.group, s.four.data(), TOO_MANY, DType::FLOAT32, 0); }},
      {"reduce", NULL_BUFFER, [](Scene& s) { comm::reduce(s.group, nullptr, 4, DType::FLOAT32); }},
      {"reduce", MISALIGNED, [](Scene& s) { comm::reduce(s.group, s.odd(), 1, DType::FLOAT32); }},
      {"all_gather", NULL_BUFFER,
       [](Scene& s) { all_gather(s.group, nullptr, 4, DType::FLOAT32, s.parts(16)); }},
      {"all_gather", MISALIGNED,
       [](Scene& s) { all_gather(s.group, s.odd(), 1, DType::FLOAT32, s.parts(4)); }},
      {"gather", NULL_BUFFER,
       [](Scene& s) {
         gather(s.group, {nullptr, 4, DType::FLOAT32}, {}, {});
       }},
      {"scatter", NULL_BUFFER,
       [](Scene& s) {
         scatter(s.group, {nullptr, 4, DType::FLOAT32}, {}, {});
       }},
      {"reduce_scatter", NULL_BUFFER,
       [](Scene& s) {
         reduce_scatter(s.group, {nullptr, 4, DType::FLOAT32}, s.const_parts(16), ReduceOp::SUM);
       }},
  };
}

std::vector<InvalidCase> ranks_and_tags(const Scene& scene) {
  std::vector<InvalidCase> cases;
  for (const int root : {-1, scene.last() + 1}) {
    const std::string reason = no_rank("root", root, scene);
    cases.push_back({"broadcast", reason, [=](Scene& s) { broadcast(s.group, s.output(), root); }});
    cases.push_back({"reduce", reason, [=](Scene& s) { comm::reduce(s.group, s.output(), root); }});
    cases.push_back(
        {"gather", reason, [=](Scene& s) { gather(s.group, s.input(), std::span(s.all), root); }});
    cases.push_back({"scatter", reason,
                     [=](Scene& s) { scatter(s.group, s.output(), std::span<const float>(s.all), root); }});
  }
  const int outside = scene.last() + 1;
  const int self = scene.group.rank();
  const int other = (self + 1) % scene.group.size();
  cases.push_back(
      {"send", no_rank("destination", outside, scene), [=](Scene& s) { send(s.group, s.input(), outside); }});
  cases.push_back(
      {"send", no_rank("destination", -1, scene), [](Scene& s) { send(s.group, s.input(), -1); }});
  cases.push_back({"recv", no_rank("source", -2, scene), [](Scene& s) { recv(s.group, s.output(), -2); }});
  cases.push_back(
      {"send", "the peer is this rank itself", [=](Scene& s) { send(s.group, s.input(), self); }});
  cases.push_back(
      {"recv", "the peer is this rank itself", [=](Scene& s) { recv(s.group, s.output(), self); }});
  if (other != self) {
    cases.push_back({"send", "tag -1 is negative", [=](Scene& s) { send(s.group, s.input(), other, -1); }});
    cases.push_back({"recv", "tag -7 is negative", [=](Scene& s) { recv(s.group, s.output(), other, -7); }});
  } else {
    cases.push_back({"recv", "there is no other rank that a message could come from",
                     [](Scene& s) { recv(s.group, s.output(), ANY_SOURCE); }});
  }
  return cases;
}

std::vector<InvalidCase> operators() {
  std::vector<InvalidCase> cases;
  const auto add = [&](DType dtype, ReduceOp op, const std::string& advice = "") {
    const std::string reason = str("there is no ", name_of(op), " of ", name_of(dtype), advice);
    cases.push_back({"all_reduce", reason, [=](Scene& s) { all_reduce(s.group, nullptr, 0, dtype, op); }});
    cases.push_back(
        {"reduce", reason, [=](Scene& s) { comm::reduce(s.group, nullptr, 0, dtype, {.op = op}); }});
    cases.push_back({"reduce_scatter", reason, [=](Scene& s) {
                       reduce_scatter(s.group, {nullptr, 0, dtype}, s.const_parts(0), op);
                     }});
  };
  add(DType::INT32, ReduceOp::AVG, "; reduce with sum and divide");
  add(DType::COMPLEX64, ReduceOp::MAX);
  add(DType::FLOAT32, ReduceOp::BAND);
  add(DType::BFLOAT16, ReduceOp::BXOR);
  return cases;
}

std::vector<InvalidCase> lists(const Scene& scene) {
  const std::string whole = "for rank 0 is not a whole number of float32";
  const std::string own = "the list's entry for this rank has 5 elements, the rank's own buffer has 4";
  const int me = scene.group.rank();
  return {
      {"all_gather",
       str("one output per rank is needed: ", scene.ranks, " of 4 elements each, or one output of ",
           4 * scene.ranks, " elements"),
       [](Scene& s) { all_gather(s.group, s.four.data(), 4, DType::FLOAT32, {}); }},
      {"all_gather", "the output for this rank has 5 elements, its input has 4",
       [](Scene& s) { all_gather(s.group, s.four.data(), 4, DType::FLOAT32, s.parts(20)); }},
      {"all_gather", "an output is not a whole number of float32",
       [](Scene& s) { all_gather(s.group, s.four.data(), 4, DType::FLOAT32, s.parts(15)); }},
      {"gather", one_per_rank("output", scene, 0),
       [=](Scene& s) { gather(s.group, s.input(), std::span<float>(), me); }},
      {"gather", own, [=](Scene& s) { gather(s.group, contribution(s.input()), s.parts(20), {.root = me}); }},
      {"gather", "the output " + whole,
       [=](Scene& s) { gather(s.group, contribution(s.input()), s.parts(15), {.root = me}); }},
      {"scatter", one_per_rank("input", scene, 0),
       [=](Scene& s) { scatter(s.group, s.output(), std::span<const float>(), me); }},
      {"scatter", own,
       [=](Scene& s) { scatter(s.group, destination(s.output()), s.const_parts(20), {.root = me}); }},
      {"scatter", "the input " + whole,
       [=](Scene& s) { scatter(s.group, destination(s.output()), s.const_parts(15), {.root = me}); }},
      {"reduce_scatter", one_per_rank("input", scene, 0),
       [](Scene& s) { reduce_scatter(s.group, s.output(), std::span<const float>()); }},
      {"reduce_scatter", own,
       [](Scene& s) { reduce_scatter(s.group, destination(s.output()), s.const_parts(20), ReduceOp::SUM); }},
      {"all_to_all", one_per_rank("input", scene, 0),
       [](Scene& s) {
         all_to_all(s.group, DType::FLOAT32, {{}, s.parts(16)});
       }},
      {"all_to_all", one_per_rank("output", scene, 0),
       [](Scene& s) {
         all_to_all(s.group, DType::FLOAT32, {s.const_parts(16), {}});
       }},
      {"all_to_all", "the output " + whole,
       [](Scene& s) {
         all_to_all(s.group, DType::FLOAT32, {s.const_parts(16), s.parts(15)});
       }},
      {"all_to_all", own,
       [](Scene& s) {
         all_to_all(s.group, DType::FLOAT32, {s.const_parts(16), s.parts(20)});
       }},
  };
}

// Only the root may give a list to gather and scatter.
std::vector<InvalidCase> lists_of_others(const Scene& scene) {
  if (scene.group.size() == 1) return {};
  const int root = (scene.group.rank() + 1) % scene.group.size();
  return {
      {"gather", str("outputs are given, but only the root, rank ", root, ", receives"),
       [=](Scene& s) { gather(s.group, contribution(s.input()), s.parts(16), {.root = root}); }},
      {"scatter", str("inputs are given, but only the root, rank ", root, ", sends"),
       [=](Scene& s) { scatter(s.group, destination(s.output()), s.const_parts(16), {.root = root}); }},
  };
}

std::string message_of(const InvalidCase& one, Scene& scene) {
  try {
    one.call(scene);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no InvalidArgument";
}

RANKS_TEST(InvalidArguments, EachHasOneMessage, Ranks(1, 2, 3, 4), EveryBackend()) {
  Scene scene(world());
  for (const auto& table :
       {buffers(), ranks_and_tags(scene), operators(), lists(scene), lists_of_others(scene)}) {
    for (const InvalidCase& one : table) {
      EXPECT_EQ(message_of(one, scene),
                str(one.verb, " on group \"world\", rank ", rank(), " of ", size(), ": ", one.reason));
    }
  }
  int sum = 1;
  comm::all_reduce(world(), std::span(&sum, 1));
  EXPECT_EQ(sum, size());
}

}  // namespace
}  // namespace lockstep
