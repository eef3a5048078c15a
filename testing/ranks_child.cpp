#include "testing/ranks_child.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/environment.h"
#include "testing/ranks_world.h"

namespace lockstep::harness {
namespace {

std::optional<ChildPlan> child;
std::unique_ptr<ReportWriter> writer;
thread_local int current_rank = 0;

const JobEnvironment& given_world() {
  static const JobEnvironment instance = job_environment();
  return instance;
}

class Listener : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.passed()) return;
    writer->write({result.skipped() ? ReportKind::SKIPPED : ReportKind::FAILURE, current_rank,
                   result.file_name() != nullptr ? result.file_name() : "", result.line_number(),
                   result.message()});
  }
};

void run_as(const Place& place, BodyFactory make_body) {
  current_rank = place.rank;
  try {
    const auto body = make_body();
    body->take_place(place);
    body->run();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "the body threw: " << error.what();
  }
}

// {0} and {1, 2}, or {0, 1} and {2, 3}; hosts that really cannot share memory say which they are
// (RANKS_TEST_ON_HOSTS).
// NOLINTBEGIN(concurrency-mt-unsafe): before the test begins
void choose_node(const std::string& backend, int rank, int size) {
  if (!backend.starts_with("hierarchical") || getenv("RANKS_TEST_ON_HOSTS") != nullptr) return;
  setenv("LOCKSTEP_NODE", rank < size / 2 ? "first" : "second", 1);
}

// NCCL takes two ranks on one GPU only if they say that they are on different machines. They then exchange
// messages over the loopback.
void choose_nccl([[maybe_unused]] int rank, [[maybe_unused]] int size) {
#ifdef LOCKSTEP_ON_GPU
  if (size <= device_count()) return;
  setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
#else
  if (has_nccl()) setenv("LOCKSTEP_NCCL", LOCKSTEP_NCCL_STAND_IN, 0);
#endif
}
// NOLINTEND(concurrency-mt-unsafe)

void run_threads(int size, BodyFactory make_body) {
  std::vector<ProcessGroup> groups = groups_of_threads(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    auto group = std::make_shared<const ProcessGroup>(std::move(groups[static_cast<std::size_t>(rank)]));
    threads.emplace_back([=] {
      run_as({rank, size, "thread", group}, make_body);
      group->close();
    });
  }
}

// What fails, for ranks of whose tests nothing else is printed. GoogleTest holds its lock here: it must not
// be asked which test runs.
class FailurePrinter : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.passed()) return;
    std::printf("rank %d of %d, %s: %s:%d: %s\n", given_world().rank, given_world().world_size, test_.c_str(),
                result.file_name() != nullptr ? result.file_name() : "", result.line_number(),
                result.message());
    std::fflush(stdout);
  }

  std::string test_;
};

}  // namespace

bool is_child() { return child.has_value(); }

void become_child(const ChildPlan& plan) {
  child = plan;
  current_rank = plan.rank;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(1);    // it had died before the line above
  setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a killed rank's last lines are the interesting ones
  writer = std::make_unique<ReportWriter>(plan.report_fd);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Listener);
}

void run_body(const Plan& plan, const std::string& backend, int size, BodyFactory make_body) {
  if (backend == "thread") {
    run_threads(size, make_body);
  } else {
    choose_node(backend, child->rank, size);
    choose_nccl(child->rank, size);
    if (plan.makes_group) join_world(backend);
    run_as({child->rank, size, backend, nullptr}, make_body);
    leave_world();
  }
  writer->write({.kind = ReportKind::FINISHED, .rank = child->rank});
}

#ifdef LOCKSTEP_ON_GPU
bool has_nccl() { return device_count() > 0; }

int device_count() {
  int count = 0;
  while (std::filesystem::exists("/dev/nvidia" + std::to_string(count))) ++count;
  return count;
}
#else
bool has_nccl() { return LOCKSTEP_NCCL_STAND_IN[0] != '\0'; }

int device_count() { return 4; }  // of tests/nccl and tests/cuda
#endif

std::string given_world_backend() {
  const char* const value = std::getenv("RANKS_TEST_WORLD");  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
}

bool is_in_given_world() { return !given_world_backend().empty(); }

int given_world_size() { return given_world().world_size; }

void join_given_world() {
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (given_world().rank > 0) delete listeners.Release(listeners.default_result_printer());
  if (given_world().rank > 0) listeners.Append(new FailurePrinter);
}

// NOLINTBEGIN(concurrency-mt-unsafe): between tests no thread reads the environment
void run_in_given_world(const Plan& plan, const std::string& backend, BodyFactory make_body) {
  for (const auto& [name, value] : plan.variables) setenv(name.c_str(), value.c_str(), 1);
  choose_node(backend, given_world().rank, given_world().world_size);
  try {
    join_world(backend);
    run_as({given_world().rank, given_world().world_size, backend, nullptr}, make_body);
    leave_world();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  for (const auto& [name, value] : plan.variables) unsetenv(name.c_str());
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace lockstep::harness
