#include "lockstep/base/fail_point.h"

#include <unistd.h>
#include <csignal>

#include <atomic>
#include <charconv>
#include <optional>
#include <string>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct Plan {
  std::string name;
  std::string action;
  std::atomic<long> skip{0};
  bool armed = false;
};

long number(std::string_view text, const std::string& whole) {
  long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument("LOCKSTEP_FAIL_POINT=\"" + printable(whole) +
                          "\" must look like NAME@RANK[+SKIP]=ACTION");
  }
  return value;
}

void parse(Plan& plan) {
  const auto text = env("LOCKSTEP_FAIL_POINT");
  if (!text) return;
  const auto at = text->find('@');
  const auto equals = text->find('=');
  if (at == std::string::npos || equals == std::string::npos || equals < at) number("?", *text);
  const std::string_view where = std::string_view(*text).substr(at + 1, equals - at - 1);
  const auto plus = where.find('+');
  plan.name = text->substr(0, at);
  plan.action = text->substr(equals + 1);
  if (plus != std::string_view::npos) plan.skip = number(where.substr(plus + 1), *text);
  plan.armed = number(where.substr(0, plus), *text) == job_environment().rank;
}

Plan& plan() {
  static Plan* const instance = [] {
    auto* fresh = new Plan;  // never freed: fail points sit in teardown paths as well
    parse(*fresh);
    return fresh;
  }();
  return *instance;
}

}  // namespace

std::atomic<detail::FailPoints> detail::fail_points{detail::FailPoints::UNKNOWN};

void detail::reach_fail_point(std::string_view name) {
  Plan& armed = plan();
  fail_points.store(armed.armed ? FailPoints::SOME : FailPoints::NONE, std::memory_order_relaxed);
  if (!armed.armed || armed.name != name || armed.skip.fetch_sub(1) != 0) return;
  if (armed.action == "kill") kill(getpid(), SIGKILL);
  if (armed.action == "stop") kill(getpid(), SIGSTOP);
  if (armed.action == "exit") _exit(0);
  if (armed.action == "throw") throw InternalError(str("fail point ", name, " was asked to throw"));
}

}  // namespace lockstep
