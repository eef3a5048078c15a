#include "lockstep/parallel/pipeline/value_specs.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/dtype.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// Reads the words one after the other.
class Words {
 public:
  explicit Words(const std::vector<std::int64_t>& words) : words_(words) {}
  std::int64_t next() { return words_.at(place_++); }

 private:
  const std::vector<std::int64_t>& words_;
  std::size_t place_ = 0;
};

}  // namespace

ValueSpecs specs_of(const NamedTensors& values) {
  ValueSpecs specs;
  for (const auto& [name, tensor] : values) {
    specs.push_back({.skip = name});
    if (!tensor.defined()) continue;
    specs.back() = {.skip = name,
                    .is_defined = true,
                    .dtype = tensor.scalar_type(),
                    .sizes = tensor.sizes().vec(),
                    .requires_grad = tensor.requires_grad()};
  }
  return specs;
}

std::string to_text(const ValueSpec& spec) {
  const std::string skip = spec.skip.empty() ? "" : str(", skip ", in_quotes(spec.skip));
  if (!spec.is_defined) return "undefined" + skip;
  return lockstep::str(at::IntArrayRef(spec.sizes), ' ', name_of(dtype_of(spec.dtype)), skip);
}

std::vector<std::int64_t> words_of(const ValueSpecs& specs) {
  std::vector<std::int64_t> words = {static_cast<std::int64_t>(specs.size())};
  for (const ValueSpec& spec : specs) {
    words.push_back(spec.is_defined ? 1 : 0);
    words.push_back(static_cast<std::int64_t>(spec.dtype));
    words.push_back(spec.requires_grad ? 1 : 0);
    words.push_back(static_cast<std::int64_t>(spec.sizes.size()));
    words.insert(words.end(), spec.sizes.begin(), spec.sizes.end());
    words.push_back(static_cast<std::int64_t>(spec.skip.size()));
    words.insert(words.end(), spec.skip.begin(), spec.skip.end());
  }
  return words;
}

ValueSpecs specs_of_words(const std::vector<std::int64_t>& numbers) {
  Words words(numbers);
  ValueSpecs specs(static_cast<std::size_t>(words.next()));
  for (ValueSpec& spec : specs) {
    spec.is_defined = words.next() != 0;
    spec.dtype = static_cast<at::ScalarType>(words.next());
    spec.requires_grad = words.next() != 0;
    spec.sizes.resize(static_cast<std::size_t>(words.next()));
    for (std::int64_t& size : spec.sizes) size = words.next();
    spec.skip.resize(static_cast<std::size_t>(words.next()));
    for (char& letter : spec.skip) letter = static_cast<char>(words.next());
  }
  return specs;
}

std::uint64_t signature_of(const std::vector<at::Tensor>& tensors) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  const auto add = [&](std::uint64_t word) { hash = (hash ^ word) * 1099511628211ULL; };
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) {
      add(0);
      continue;
    }
    add(static_cast<std::uint64_t>(tensor.dim()) + 1);
    add(static_cast<std::uint64_t>(tensor.scalar_type()));
    for (std::int64_t d = 1; d < tensor.dim(); ++d) add(static_cast<std::uint64_t>(tensor.size(d)));
  }
  return hash;
}

std::optional<std::string> first_difference(const ValueSpecs& agreed, const ValueSpecs& now,
                                            bool with_gradients) {
  if (agreed.size() != now.size())
    return str(now.size(), " values, where ", agreed.size(), " were agreed (outputs and skip tensors)");
  for (std::size_t i = 0; i < agreed.size(); ++i) {
    ValueSpec mine = now[i];
    if (!with_gradients) mine.requires_grad = agreed[i].requires_grad;
    if (mine == agreed[i]) continue;
    const auto text = [](const ValueSpec& spec) {
      return str(to_text(spec), spec.requires_grad ? " with a gradient" : "");
    };
    return str("value ", i, " as ", text(mine), ", where ", text(agreed[i]), " was agreed");
  }
  return std::nullopt;
}

ValueSpecs gradient_specs(const ValueSpecs& specs) {
  ValueSpecs gradients;
  for (const ValueSpec& spec : specs) {
    if (!spec.requires_grad) continue;
    gradients.push_back(spec);
    gradients.back().skip.clear();
  }
  return gradients;
}

std::size_t bytes_of(const ValueSpec& spec) {
  return spec.is_defined ? shape_bytes(spec.sizes, c10::elementSize(spec.dtype)).value() : 0;
}

at::Tensor empty_value(const ValueSpec& spec) {
  return spec.is_defined ? at::empty(spec.sizes, spec.dtype) : at::Tensor();
}

NamedTensors zero_values(const ValueSpecs& specs) {
  NamedTensors values;
  for (const ValueSpec& spec : specs)
    values.emplace_back(spec.skip, spec.is_defined ? at::zeros(spec.sizes, spec.dtype) : at::Tensor());
  return values;
}

}  // namespace lockstep
