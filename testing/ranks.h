// RANKS_TEST: a test written for one rank and run by several at once.
//
//   // the body runs once per rank
//   RANKS_TEST(AllReduce, SumsEveryRanksContribution, Ranks(1, 2, 3, 4), EveryBackend()) {
//     std::vector<float> x(1000, static_cast<float>(rank()));
//     comm::all_reduce(world(), std::span(x));
//     EXPECT_THAT(x, Each(size() * (size() - 1) / 2.0F));
//   }
//
//   RANKS_TEST(AllReduce, SurvivorsLearnWhoDied, Ranks(4), Dies({2})) {
//     if (rank() == 2) die();
//     EXPECT_THAT([&] { comm::barrier(world()).wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 2")));
//   }
//
// Every combination of test, backend and number of ranks is a GoogleTest test of its own, here
// AllReduce/SumsEveryRanksContribution.shm_4. A file with such tests is listed under RANK_TESTS in its room.
//
// Arguments   Ranks(n...)          how many ranks, required
//             Backends("shm"...)   over what; "shm" if not said. EveryBackend(): self (one rank), thread,
//                                  shm, tcp,
//             hierarchical (three and four ranks, of which ranks 2 and 3 count as on a second machine), nccl
//             (three ranks, or two, over the stand-in of tests/nccl, to which all memory is a device's), mpi
//             (below), gloo (two and three ranks, where its module was built; a test that names it: the most
//             it has; with libtorch only such tests), hierarchical+gloo (likewise, but three and four),
//             hierarchical+nccl (four ranks; with libtorch only tests that name it), hierarchical+mpi
//             (below). BackendsWithPeers(): all but self and the two of NCCL Except("nccl"...) after one of
//             these two: not over these, nor hierarchical+these, because they lack what the
//                                  test is about
//             Dies({r...})         these ranks are killed by die() or otherwise with SIGKILL; others may not
//                                  die
//             Within(5s)           time for the whole test; 20 min if not said, less than CTest's 25
//             Variable("A", "b")   environment of the ranks
//             Devices(n)           skipped where there are fewer GPUs
//             WithoutGroup()       no group is made: the body calls init_process_group() itself
// Members     rank(), size(), world(), backend_name(), rejoin(), die(): what a body may use.
// Processes   Ranks are processes; those of "thread" alone are threads of one. They have the environment that
//             `lockstep run` would set, and this process only watches. Without libtorch the binary starts
//             itself again for each of them, as a job does; with libtorch, which takes longer to load than
//             most tests take to run, they are forks of this process.
// One world   A process that is started with a backend's name as RANKS_TEST_WORLD is one rank of all tests
//             over it of its world's size, one after the other: under mpirun (see CMakeLists.txt; tests over
//             mpi and hierarchical+mpi exist only there) and on several hosts (tests/hosts). Tests in which
//             ranks die or have fail points are left out.
// Failures    Every failed expectation is reported with its rank. Also failures: a rank that throws, dies,
//             exits, skips or runs no test. At the deadline all ranks are killed and their last output and
//             place in the kernel are shown.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep::harness {

struct Plan {
  std::vector<int> sizes;
  std::vector<std::string> backends = {"shm"};
  bool every_backend = false;
  std::vector<int> dying;
  std::chrono::seconds within{1200};
  std::vector<std::pair<std::string, std::string>> variables;
  bool makes_group = true;
  int devices = 1;
};

// Each argument of RANKS_TEST is a small object that changes the plan.
struct Ranks {
  std::vector<int> sizes;
  template <typename... Size> explicit Ranks(Size... size) : sizes{size...} {}
  void apply(Plan& plan) const { plan.sizes = sizes; }
};
struct Backends {
  std::vector<std::string> names;
  template <typename... Name> explicit Backends(Name... name) : names{name...} {}
  void apply(Plan& plan) const { plan.backends = names; }
};
struct EveryBackend {
  void apply(Plan& plan) const {
    Backends("self", "thread", "shm", "tcp", "hierarchical", "nccl", "hierarchical+nccl", "mpi", "gloo",
             "hierarchical+gloo", "hierarchical+mpi")
        .apply(plan);
    plan.every_backend = true;
  }
};
struct Except {
  std::vector<std::string> names;
  template <typename... Name> explicit Except(Name... name) : names{name...} {}
  void apply(Plan& plan) const {
    for (const std::string& name : names)
      std::erase_if(plan.backends,
                    [&](const std::string& b) { return b == name || b == "hierarchical+" + name; });
  }
};
struct BackendsWithPeers {
  void apply(Plan& plan) const {
    EveryBackend().apply(plan);
    plan.every_backend = false;
    std::erase(plan.backends, "self");
    Except("nccl").apply(plan);
  }
};
struct Dies {
  std::vector<int> ranks;
  explicit Dies(std::vector<int> which) : ranks(std::move(which)) {}
  void apply(Plan& plan) const { plan.dying = ranks; }
};
struct Within {
  std::chrono::seconds time;
  explicit Within(std::chrono::seconds limit) : time(limit) {}
  void apply(Plan& plan) const { plan.within = time; }
};
struct Variable {
  std::string name, value;
  Variable(std::string variable, std::string text) : name(std::move(variable)), value(std::move(text)) {}
  void apply(Plan& plan) const { plan.variables.emplace_back(name, value); }
};
struct Devices {
  int count;
  explicit Devices(int least) : count(least) {}
  void apply(Plan& plan) const { plan.devices = count; }
};
struct WithoutGroup {
  void apply(Plan& plan) const { plan.makes_group = false; }
};

template <typename... Arguments> Plan make_plan(const Arguments&... arguments) {
  Plan plan;
  (arguments.apply(plan), ...);
  return plan;
}

// One rank of a running test.
struct Place {
  int rank = 0;
  int size = 1;
  std::string backend;
  std::shared_ptr<const ProcessGroup>
      thread_group;  // null when the rank is a process: its group is lockstep::world()
};

class RanksBody {
 public:
  virtual ~RanksBody() = default;
  virtual void run() = 0;
  void take_place(Place place) { place_ = std::move(place); }

 protected:
  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  const ProcessGroup& world() const;
  const std::string& backend_name() const { return place_.backend; }
  void rejoin() const;             // leaves the world and joins a new one, as all ranks must (processes only)
  [[noreturn]] static void die();  // SIGKILL to this rank; see Dies()

 private:
  Place place_;
};

using BodyFactory = std::unique_ptr<RanksBody> (*)();

struct Registration {
  const char* suite;
  const char* name;
  const char* file;
  int line;
  BodyFactory make_body;
};

// Registers one GoogleTest test per backend and size. Returns true, so that it can initialise a static.
bool register_ranks_test(const Registration& registration, const Plan& plan);

}  // namespace lockstep::harness

// NOLINTBEGIN(cppcoreguidelines-macro-usage,google-build-using-namespace)
// A test needs a class, a registration and a body under one name.
#define RANKS_TEST(suite, name, ...)                                                                       \
  class suite##_##name##_Ranks : public ::lockstep::harness::RanksBody {                                   \
    void run() override;                                                                                   \
    static std::unique_ptr<::lockstep::harness::RanksBody> make() {                                        \
      return std::make_unique<suite##_##name##_Ranks>();                                                   \
    }                                                                                                      \
    static ::lockstep::harness::Plan plan() {                                                              \
      using namespace ::lockstep::harness; /* NOLINT(google-build-using-namespace): names of the arguments \
                                            */                                                             \
      return make_plan(__VA_ARGS__);                                                                       \
    }                                                                                                      \
    static inline const bool registered_ =                                                                 \
        ::lockstep::harness::register_ranks_test({#suite, #name, __FILE__, __LINE__, &make}, plan());      \
  };                                                                                                       \
  void suite##_##name##_Ranks::run()
// NOLINTEND(cppcoreguidelines-macro-usage,google-build-using-namespace)
