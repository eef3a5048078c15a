// ValueSpecs: what a part of a pipeline's model passes to the next part, without the numbers. Sender and
// receiver agree about it once, so that later messages carry numbers alone. Pure.
//
//   const ValueSpecs agreed = specs_of(values);
//   ValueSpecs same = specs_of_words(words_of(agreed));             // as it travels
//   const auto change = first_difference(agreed, specs_of(later));  // "value 0 is [2, 8] float32, ..."
//
// Values      NamedTensors. The outputs of the stage's function come first and have the name ""; skip tensors
//             (pipeline_skip.h) follow with theirs. An undefined tensor is a value, too.
// Gradients   go back for the values that require one, in their order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.h"

namespace lockstep {

struct ValueSpec {
  std::string skip;  // its name; "": an output of the function
  bool is_defined = false;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> sizes;
  bool requires_grad = false;
  bool operator==(const ValueSpec&) const = default;
};
using ValueSpecs = std::vector<ValueSpec>;

ValueSpecs specs_of(const NamedTensors& values);
// "[2, 8] float32", "[3] int64, skip \"a\"", "undefined".
std::string to_text(const ValueSpec& spec);

// As numbers, and back.
std::vector<std::int64_t> words_of(const ValueSpecs& specs);
ValueSpecs specs_of_words(const std::vector<std::int64_t>& words);

// A number that differs for tensors of other shapes or dtypes, but for the rows: sizes from the second on.
std::uint64_t signature_of(const std::vector<at::Tensor>& tensors);

// In words; nothing if both are equal. Without `with_gradients`, requires_grad is not compared.
std::optional<std::string> first_difference(const ValueSpecs& agreed, const ValueSpecs& now,
                                            bool with_gradients);

// Of the gradients that go back for these values, without names.
ValueSpecs gradient_specs(const ValueSpecs& specs);

// 0, and an undefined tensor, for a value that is undefined.
std::size_t bytes_of(const ValueSpec& spec);
at::Tensor empty_value(const ValueSpec& spec);
NamedTensors zero_values(const ValueSpecs& specs);

}  // namespace lockstep
