// How often a call runs each of libtorch's operators, by name, on the thread that calls.
//
//   const auto calls = operator_calls([&] { loss.backward(); });
//   EXPECT_EQ(calls.at("aten::mm"), 2);
#pragma once

#include <ATen/record_function.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace lockstep::testing {

using OperatorCalls = std::map<std::string, int>;

inline OperatorCalls operator_calls(const std::function<void()>& call) {
  static thread_local OperatorCalls* counted = nullptr;
  OperatorCalls calls;
  counted = &calls;
  const auto begin = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    ++(*counted)[function.name()];
    return nullptr;
  };
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(begin).scopes({at::RecordScope::FUNCTION}));
  call();
  at::removeCallback(handle);
  return calls;
}

}  // namespace lockstep::testing
