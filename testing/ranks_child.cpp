#include "testing/ranks_child.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "testing/ranks_world.h"

namespace lockstep::harness {
namespace {

std::optional<ChildPlan> child;
std::unique_ptr<ReportWriter> writer;
thread_local int current_rank = 0;

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
    if (plan.makes_group) join_world(backend);
    run_as({child->rank, size, backend, nullptr}, make_body);
    leave_world();
  }
  writer->write({.kind = ReportKind::FINISHED, .rank = child->rank});
}

}  // namespace lockstep::harness
