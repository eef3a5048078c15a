#include "lockstep/parallel/gradients/parameter_claims.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace lockstep {

struct ParameterClaims::Claim {
  const void* tensor;
  std::atomic<std::size_t> count{0};
  std::vector<const ParameterClaims*> wrappers;  // guarded by the table's mutex
};

namespace {

template <typename Claim> struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, std::shared_ptr<Claim>> claims;  // by tensor, which its wrappers keep alive
  std::atomic<std::uint64_t> forwards{0};
};

// Outlives static destructors, because wrappers may.
template <typename Claim> Table<Claim>& table() {
  static auto* const instance = new Table<Claim>;
  return *instance;
}

}  // namespace

ParameterClaims::ParameterClaims(const std::vector<at::Tensor>& parameters) {
  auto& all = table<Claim>();
  const std::lock_guard lock(all.mutex);
  for (const at::Tensor& parameter : parameters) {
    const void* tensor = parameter.unsafeGetTensorImpl();
    auto& claim = all.claims[tensor];
    if (!claim) {
      claim = std::make_shared<Claim>();
      claim->tensor = tensor;
    }
    claim->wrappers.push_back(this);
    claim->count = claim->wrappers.size();
    claims_.push_back(claim);
  }
}

ParameterClaims::~ParameterClaims() {
  auto& all = table<Claim>();
  const std::lock_guard lock(all.mutex);
  for (const auto& claim : claims_) {
    std::erase(claim->wrappers, this);
    claim->count = claim->wrappers.size();
    if (claim->wrappers.empty()) all.claims.erase(claim->tensor);
  }
}

bool ParameterClaims::is_shared(std::size_t parameter) const { return claims_[parameter]->count > 1; }

std::optional<std::size_t> ParameterClaims::first_shared() const {
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    if (is_shared(i)) return i;
  }
  return std::nullopt;
}

void ParameterClaims::forward_begins() {
  expects_ = true;
  last_forward_ = ++table<Claim>().forwards;
}

void ParameterClaims::set_in_pass(bool on) {
  if (on) expects_ = false;
  is_in_pass_ = on;
}

bool ParameterClaims::begins_pass(std::size_t parameter) const {
  if (!is_shared(parameter) || expects_) return true;
  const std::lock_guard lock(table<Claim>().mutex);
  for (const ParameterClaims* other : claims_[parameter]->wrappers) {
    if (other == this) continue;
    if (other->expects_ || other->is_in_pass_ || other->last_forward_ > last_forward_) return false;
  }
  return last_forward_ > 0;
}

}  // namespace lockstep
