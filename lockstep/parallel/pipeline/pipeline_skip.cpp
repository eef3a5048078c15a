#include "lockstep/parallel/pipeline/pipeline_skip.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

thread_local NamedTensors stashed;

auto find_stashed(const std::string& name) {
  return std::find_if(stashed.begin(), stashed.end(), [&](const auto& entry) { return entry.first == name; });
}

}  // namespace

void pipeline_stash(const std::string& name, const at::Tensor& tensor) {
  if (name.empty()) throw InvalidArgument("pipeline_stash: the name is empty");
  if (find_stashed(name) != stashed.end()) {
    throw InvalidArgument(
        str("pipeline_stash: ", in_quotes(name),
            " is stashed already and was not popped; each name is stashed and popped once"));
  }
  stashed.emplace_back(name, tensor);
}

at::Tensor pipeline_pop(const std::string& name) {
  const auto found = find_stashed(name);
  if (found == stashed.end()) {
    throw InvalidArgument(str("pipeline_pop: nothing is stashed as ", in_quotes(name),
                              "; a module before this one must call pipeline_stash() with that name"));
  }
  at::Tensor tensor = std::move(found->second);
  stashed.erase(found);
  return tensor;
}

PipelineSkipScope::PipelineSkipScope(NamedTensors arrived)
    : before_(std::exchange(stashed, std::move(arrived))) {}

PipelineSkipScope::~PipelineSkipScope() { stashed = std::move(before_); }

const NamedTensors& PipelineSkipScope::left() const { return stashed; }

}  // namespace lockstep
