// Finds the tensors in the result of a forward. The result may be a tensor, optional, pair, tuple, array,
// vector, map or pointer to any of these, nested in any way. For a struct of its own, a program defines one
// function beside it:
//
//   struct Detections {
//     torch::Tensor boxes;
//     std::vector<torch::Tensor> scores;
//   };
//   void visit_tensors(const Detections& detections, lockstep::OutputTensors& outputs) {
//     outputs.visit(detections.boxes);
//     outputs.visit(detections.scores);
//   }
//
// Needed by find_unused_parameters and static_graph alone. A type that cannot be searched is not an error:
// `complete` is then false, and unused parameters are found at the end of backward instead of at its
// beginning.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

struct OutputTensors {
  std::vector<at::Tensor> tensors;
  bool complete = true;

  template <typename T> void visit(const T& output);

 private:
  template <typename... Parts> void visit_parts(const std::tuple<Parts...>& parts) {
    std::apply([&](const auto&... part) { (visit(part), ...); }, parts);
  }
};

namespace detail {

template <typename T> inline constexpr bool is_tuple = false;
template <typename... Parts> inline constexpr bool is_tuple<std::tuple<Parts...>> = true;

template <typename T> inline constexpr bool is_pair = false;
template <typename First, typename Second> inline constexpr bool is_pair<std::pair<First, Second>> = true;

template <typename T> inline constexpr bool holds_at_most_one = false;  // it can be tested and dereferenced
template <typename T> inline constexpr bool holds_at_most_one<std::optional<T>> = true;
template <typename T> inline constexpr bool holds_at_most_one<std::shared_ptr<T>> = !std::is_void_v<T>;
template <typename T, typename Deleter>
inline constexpr bool holds_at_most_one<std::unique_ptr<T, Deleter>> = !std::is_array_v<T>;

template <typename T>
inline constexpr bool holds_no_tensor = std::is_arithmetic_v<T> || std::is_enum_v<T> ||
                                        std::is_same_v<T, std::string> || std::is_same_v<T, std::nullopt_t>;

template <typename T>
concept NamedItem = requires(const T& item) {  // of a torch::OrderedDict
  item.key();
  item.value();
};

template <typename T>
concept HasVisitor = requires(const T& output, OutputTensors& outputs) {
  visit_tensors(output, outputs);
};

}  // namespace detail

template <typename T> void OutputTensors::visit(const T& output) {
  if constexpr (std::is_convertible_v<const T&, const at::Tensor&>) {
    const at::Tensor& tensor = output;
    if (tensor.defined()) tensors.push_back(tensor);
  } else if constexpr (detail::HasVisitor<T>) {
    visit_tensors(output, *this);
  } else if constexpr (detail::holds_no_tensor<T>) {
    return;
  } else if constexpr (detail::holds_at_most_one<T>) {
    if (output) visit(*output);
  } else if constexpr (detail::NamedItem<T>) {
    visit(output.value());
  } else if constexpr (detail::is_pair<T>) {
    visit(output.first);
    visit(output.second);
  } else if constexpr (detail::is_tuple<T>) {
    visit_parts(output);
  } else if constexpr (std::ranges::range<const T>) {
    for (const auto& element : output) visit(element);
  } else {
    complete = false;
  }
}

}  // namespace lockstep
