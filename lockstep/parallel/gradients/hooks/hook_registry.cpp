#include "lockstep/parallel/gradients/hooks/hook_registry.h"

#include <map>
#include <mutex>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/gradients/hooks/int8_hook.h"
#include "lockstep/parallel/gradients/hooks/plain_hooks.h"
#include "lockstep/parallel/gradients/hooks/power_sgd_hook.h"
#include "lockstep/parallel/gradients/hooks/top_k_hook.h"

namespace lockstep {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, CommHookMaker> makers = {
      {"allreduce", [] { return std::make_shared<AllReduceHook>(); }},
      {"bf16_compress", [] { return std::make_shared<CompressHook>(at::kBFloat16); }},
      {"fp16_compress", [] { return std::make_shared<CompressHook>(at::kHalf); }},
      {"int8", [] { return std::make_shared<Int8Hook>(); }},
      {"noop", [] { return std::make_shared<NoopHook>(); }},
      {"powerSGD", [] { return std::make_shared<PowerSgdHook>(); }},
      {"topk", [] { return std::make_shared<TopKHook>(); }},
  };
};

Registry& registry() {
  static Registry instance;
  return instance;
}

}  // namespace

std::shared_ptr<CommHook> make_comm_hook(const std::string& name) {
  CommHookMaker make;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().makers.find(name);
    if (found != registry().makers.end()) make = found->second;
  }
  if (make) return make();
  std::string known;
  for (const std::string& each : comm_hook_names()) known += (known.empty() ? "" : ", ") + each;
  throw InvalidArgument(
      lockstep::str("there is no communication hook \"", printable(name), "\"; there are: ", known));
}

void add_comm_hook(const std::string& name, CommHookMaker make) {
  const std::lock_guard lock(registry().mutex);
  if (!registry().makers.emplace(name, std::move(make)).second) {
    throw InvalidArgument(
        lockstep::str("a communication hook \"", printable(name), "\" is registered already"));
  }
}

std::vector<std::string> comm_hook_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, make] : registry().makers) names.push_back(name);
  return names;
}

}  // namespace lockstep
