#include "testing/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <stdexcept>

#include "lockstep/base/str.h"
#include "testing/ranks_child.h"
#include "testing/ranks_processes.h"
#include "testing/ranks_world.h"

namespace lockstep::harness {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Adds what this rank printed last and where it was, if it was still running.
std::string details(const ProcessOutcome& process) {
  std::string text;
  if (process.timed_out) text += "\nit was here:\n" + process.where;
  if (!process.last_output.empty()) text += "\nits last output:\n" + process.last_output;
  return text;
}

// What is wrong with the end of this process, apart from failures it has reported; empty if nothing.
std::string complaint(const ProcessOutcome& process, bool should_die) {
  if (process.timed_out) return "was still running at the deadline and was killed";
  if (process.signal != 0 && !(should_die && process.signal == SIGKILL)) {
    return str("died of signal ", process.signal, " (", strsignal(process.signal), ")");
  }
  if (should_die && process.signal == 0) return "should have died of signal 9 and did not";
  if (should_die) return "";
  if (!process.finished) return str("exited with code ", process.exit_code, " before it had run the test");
  return "";
}

#ifdef LOCKSTEP_RANKS_AS_COPIES
constexpr bool AS_COPIES = true;
#else
constexpr bool AS_COPIES = false;
#endif

class RanksFixture : public ::testing::Test {
 public:
  RanksFixture(const Registration& registration, const Plan& plan, std::string backend, int size)
      : registration_(registration), plan_(plan), backend_(std::move(backend)), size_(size) {}

 private:
  void TestBody() override {
    if (plan_.devices > device_count())
      GTEST_SKIP() << "needs " << plan_.devices << " GPUs, and here are " << device_count();
    if (!is_child() && is_in_given_world())
      return run_in_given_world(plan_, backend_, registration_.make_body);
    if (is_child()) return run_body(plan_, backend_, size_, registration_.make_body);
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    report(run_processes({.filter = str(info->test_suite_name(), ".", info->name()),
                          .as_copy = AS_COPIES ? [this](const ChildPlan& child) { return run_as_copy(child); }
                                               : std::function<int(const ChildPlan&)>(),
                          .ranks = size_,
                          .processes = backend_ == "thread" ? 1 : size_,
                          .dying = plan_.dying,
                          .within = plan_.within,
                          .variables = plan_.variables}));
  }

  int run_as_copy(const ChildPlan& child) const {
    become_child(child);
    try {
      run_body(plan_, backend_, size_, registration_.make_body);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "outside of the body: " << error.what();
    }
    return HasFailure() ? 1 : 0;
  }

  void report(const Outcome& outcome) const {
    for (const Report& failure : outcome.reports) {
      const char* skipped =
          failure.kind == ReportKind::SKIPPED ? "skipped the test, which counts as a failure: " : "";
      ADD_FAILURE_AT(failure.file.empty() ? registration_.file : failure.file.c_str(), failure.line)
          << "rank " << failure.rank << " of " << size_ << ": " << skipped << failure.message;
    }
    for (std::size_t i = 0; i < outcome.processes.size(); ++i) report_end(outcome, i);
  }

  void report_end(const Outcome& outcome, std::size_t index) const {
    const ProcessOutcome& process = outcome.processes[index];
    const std::string wrong = complaint(process, contains(plan_.dying, static_cast<int>(index)));
    const bool reported = std::any_of(
        outcome.reports.begin(), outcome.reports.end(),
        [&](const Report& report) { return backend_ == "thread" || report.rank == static_cast<int>(index); });
    const std::string who = backend_ == "thread" ? str("the process of all ", size_, " ranks")
                                                 : str("rank ", index, " of ", size_);
    if (!wrong.empty()) {
      ADD_FAILURE_AT(registration_.file, registration_.line) << who << " " << wrong << details(process);
    } else if (reported && !(process.last_output + process.note).empty()) {
      ADD_FAILURE_AT(registration_.file, registration_.line)
          << who << " failed. " << process.note << details(process);
    } else if (!reported && !contains(plan_.dying, static_cast<int>(index)) && process.exit_code != 0) {
      ADD_FAILURE_AT(registration_.file, registration_.line)
          << who << " exited with code " << process.exit_code << " after the test" << details(process);
    }
  }

  const Registration registration_;
  const Plan plan_;
  const std::string backend_;
  const int size_;
};

#ifdef LOCKSTEP_WITH_GLOO_MODULE  // which this binary depends on, so it is there
constexpr bool HAS_GLOO = true;
#else
constexpr bool HAS_GLOO = false;
#endif
#ifdef LOCKSTEP_WITH_EVERY_ENGINE
constexpr bool WITH_EVERY_ENGINE = true;
#else
constexpr bool WITH_EVERY_ENGINE = false;
#endif

// The others are left out of what does not fit them, or is not there.
bool is_everywhere(const std::string& backend) {
  return backend == "self" || backend == "thread" || backend == "shm" || backend == "tcp";
}

// Which a process has for good.
bool has_fail_point(const Plan& plan) {
  return std::any_of(plan.variables.begin(), plan.variables.end(),
                     [](const auto& variable) { return variable.first == "LOCKSTEP_FAIL_POINT"; });
}

bool fits(const Plan& plan, const std::string& backend, int size) {
  if (is_in_given_world() || backend.ends_with("mpi"))
    return backend == given_world_backend() && size == given_world_size() && plan.dying.empty() &&
           plan.makes_group && !has_fail_point(plan);
  if (backend == "self") return size == 1;
  if (backend.starts_with("hierarchical") && size < 3) return false;
  if (backend == "nccl")
    return has_nccl() && (!plan.every_backend || size == (contains(plan.sizes, 3) ? 3 : 2));
  if (backend == "hierarchical+nccl")
    return has_nccl() && (!plan.every_backend || (WITH_EVERY_ENGINE && size == 4));
  if (backend.ends_with("gloo"))
    return HAS_GLOO &&
           (plan.every_backend ? WITH_EVERY_ENGINE && size != 1 && !(backend == "gloo" && size == 4)
                               : size == *std::max_element(plan.sizes.begin(), plan.sizes.end()));
  if (backend == "thread") return plan.dying.empty() && plan.makes_group;  // a thread cannot die alone
  return true;
}

}  // namespace

const ProcessGroup& RanksBody::world() const {
  return place_.thread_group ? *place_.thread_group : process_world();
}

void RanksBody::rejoin() const {
  leave_world();
  join_world(place_.backend);
}

void RanksBody::die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

bool register_ranks_test(const Registration& registration, const Plan& plan) {
  if (plan.sizes.empty())
    throw std::invalid_argument(str("RANKS_TEST ", registration.name, " needs Ranks(n...)"));
  const std::string suite = str(registration.suite, "/", registration.name);
  for (const std::string& backend : plan.backends) {
    for (const int size : plan.sizes) {
      if (!fits(plan, backend, size)) {
        if (plan.every_backend || is_in_given_world() || !is_everywhere(backend)) continue;
        throw std::invalid_argument(str(suite, " cannot run with ", size, " ranks over ", backend));
      }
      ::testing::RegisterTest(suite.c_str(), str(backend, "_", size).c_str(), nullptr, nullptr,
                              registration.file, registration.line, [=]() -> RanksFixture* {
                                return new RanksFixture(registration, plan, backend, size);
                              });
    }
  }
  return true;
}

}  // namespace lockstep::harness
