#include "cli/checkpoint_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/plan/sizes.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += str(text.empty() ? "" : ", ", size);
  return str('[', text, ']');
}

std::string type_text(const CheckpointTensor& tensor) {
  return str(tensor.dtype, ' ', shape_text(tensor.shape));
}

bool belongs_to(const std::string& tensor, const std::string& item) {
  return tensor == item || tensor.starts_with(item + ".") || tensor.starts_with(item + "@");
}

std::size_t differing_elements(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                               std::size_t element) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); i += element)
    count += std::equal(a.begin() + static_cast<std::ptrdiff_t>(i),
                        a.begin() + static_cast<std::ptrdiff_t>(i + element),
                        b.begin() + static_cast<std::ptrdiff_t>(i))
                 ? 0
                 : 1;
  return count;
}

// Names that one map lacks, as lines.
template <typename Map>
void add_missing(const char* what, const Map& one, const Map& other, std::vector<std::string>& lines) {
  for (const auto& [name, value] : one)
    if (!other.contains(name)) lines.push_back(str(what, ' ', in_quotes(name), " is in the first alone"));
  for (const auto& [name, value] : other)
    if (!one.contains(name)) lines.push_back(str(what, ' ', in_quotes(name), " is in the second alone"));
}

void add_values(const nlohmann::json& one, const nlohmann::json& other, std::vector<std::string>& lines) {
  for (const auto& [name, value] : one.items())
    if (other.contains(name) && other.at(name) != value)
      lines.push_back(str("value ", in_quotes(name), ": ", value.dump(), " and ", other.at(name).dump()));
}

}  // namespace

std::string summary_text(const CheckpointIndex& index) {
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : index.files) bytes += file.bytes;
  return str("step ", index.step, ", ", index.ranks, index.ranks == 1 ? " rank, " : " ranks, ",
             index.tensors.size(), index.tensors.size() == 1 ? " tensor, " : " tensors, ",
             bytes_text(static_cast<double>(bytes)));
}

std::string contents_text(const CheckpointIndex& index) {
  std::string text = str(summary_text(index), '\n');
  for (const auto& [what, value] : index.made_with) text += str("made with ", what, ' ', value, '\n');
  for (const auto& [item, kind] : index.items) {
    text += str(item, " (", kind, ")\n");
    if (index.values->contains(item)) text += str("  ", index.values->at(item).dump(), '\n');
    if (index.rank_values->contains(item))
      text += str("  by rank: ", index.rank_values->at(item).dump(), '\n');
    for (const auto& [name, tensor] : index.tensors)
      if (belongs_to(name, item)) text += str("  ", name, "  ", type_text(tensor), '\n');
  }
  return text;
}

std::vector<std::string> differences_between(CheckpointReader& one, CheckpointReader& other) {
  const CheckpointIndex& a = one.index();
  const CheckpointIndex& b = other.index();
  std::vector<std::string> lines;
  add_missing("item", a.items, b.items, lines);
  add_missing("tensor", a.tensors, b.tensors, lines);
  add_values(*a.values, *b.values, lines);
  add_values(*a.rank_values, *b.rank_values, lines);
  for (const auto& [name, tensor] : a.tensors) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end()) continue;
    if (type_text(tensor) != type_text(found->second)) {
      lines.push_back(
          str("tensor ", in_quotes(name), ": ", type_text(tensor), " and ", type_text(found->second)));
      continue;
    }
    const std::size_t element = checkpoint_dtype_size(tensor.dtype);
    const std::vector<std::byte> bytes = one.read(name);
    const std::size_t count = differing_elements(bytes, other.read(name), element);
    if (count > 0)
      lines.push_back(
          str("tensor ", in_quotes(name), ": ", count, " of ", bytes.size() / element, " elements differ"));
  }
  return lines;
}

}  // namespace lockstep::cli
