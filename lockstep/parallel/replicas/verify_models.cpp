#include "lockstep/parallel/replicas/verify_models.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/replicas/broadcast_tensors.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

// A line is KIND \t NAME \t TEXT; printable() keeps tabs and line ends out of names.
constexpr char FIELD = '\t';
constexpr char LINE = '\n';

struct Fact {
  std::string kind, name, text;
  bool operator==(const Fact&) const = default;
};

// "float32" where collectives carry it, else libtorch's own name.
std::string_view name_of_type(at::ScalarType type) {
  try {
    return name_of(dtype_of(type));
  } catch (const InvalidArgument&) {
    return c10::toString(type);
  }
}

// lockstep::str: argument-dependent lookup would also find libtorch's.
std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = lockstep::str(tensor.sizes(), " ", name_of_type(tensor.scalar_type()));
  if (tensor.layout() != c10::kStrided) text += lockstep::str(" ", tensor.layout());
  if (!tensor.device().is_cpu())
    text += lockstep::str(" on ", tensor.device().type());  // without the index: each rank has its own device
  return text;
}

// Gradients lie in buckets with the strides of their parameters.
std::string strides_of(const at::Tensor& parameter) {
  if (!parameter.defined() || parameter.layout() != c10::kStrided || parameter.is_contiguous()) return "";
  return lockstep::str(" with strides ", parameter.strides());
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<Fact> facts_of(const std::string& description) {
  std::vector<Fact> facts;
  for (const std::string& line : split(description, LINE)) {
    std::vector<std::string> fields = split(line, FIELD);
    fields.resize(3);
    facts.push_back({fields[0], fields[1], fields[2]});
  }
  return facts;
}

std::string quoted_fact(const Fact& fact) {
  return lockstep::str(fact.kind, " \"", fact.name, "\" ", fact.text);
}

std::string difference(const std::vector<Fact>& expected, const std::vector<Fact>& found, std::size_t rank) {
  const std::size_t common = std::min(expected.size(), found.size());
  std::size_t i = 0;
  while (i < common && expected[i] == found[i]) ++i;
  if (i == common) {
    const bool lacks = found.size() < expected.size();
    return lockstep::str("rank ", lacks ? std::size_t{0} : rank, " has ",
                         quoted_fact(lacks ? expected[i] : found[i]), ", which rank ",
                         lacks ? rank : std::size_t{0}, " does not have");
  }
  if (expected[i].kind == found[i].kind && expected[i].name == found[i].name) {
    return lockstep::str(found[i].kind, " \"", found[i].name, "\" is ", expected[i].text, " on rank 0 but ",
                         found[i].text, " on rank ", rank);
  }
  return lockstep::str("rank 0 has ", quoted_fact(expected[i]), " where rank ", rank, " has ",
                       quoted_fact(found[i]));
}

std::string text_of_bytes(const at::Tensor& bytes) {
  std::string text(static_cast<std::size_t>(bytes.numel()), '\0');
  if (!text.empty()) std::memcpy(text.data(), bytes.const_data_ptr(), text.size());
  return text;
}

}  // namespace

std::string describe_model(const NamedTensors& parameters, const NamedTensors& buffers,
                           const std::string& options) {
  std::string text = lockstep::str("option", FIELD, "settings", FIELD, options, LINE);
  const auto add = [&text](std::string_view kind, const std::string& name, const std::string& what) {
    text += lockstep::str(kind, FIELD, printable(name, /*limit=*/1000), FIELD, what, LINE);
  };
  for (const auto& [name, tensor] : parameters) {
    const bool frozen = tensor.defined() && !tensor.requires_grad();
    add("parameter", name, tensor_text(tensor) + (frozen ? " frozen" : strides_of(tensor)));
  }
  for (const auto& [name, tensor] : buffers) {
    add("buffer", name, tensor_text(tensor) + (repeats(tensor) ? strides_of(tensor) : ""));
  }
  return text;
}

std::optional<std::string> first_difference(const std::vector<std::string>& descriptions) {
  for (std::size_t rank = 1; rank < descriptions.size(); ++rank) {
    if (descriptions[rank] == descriptions[0]) continue;
    const auto expected = facts_of(descriptions[0]);
    const auto found = facts_of(descriptions[rank]);
    const auto parameters = [](const std::vector<Fact>& facts) {
      return std::count_if(facts.begin(), facts.end(),
                           [](const Fact& fact) { return fact.kind == "parameter"; });
    };
    std::string text = difference(expected, found, rank);
    if (parameters(expected) != parameters(found)) {
      text += lockstep::str(" (", parameters(expected), " parameters on rank 0, ", parameters(found),
                            " on rank ", rank, ")");
    }
    return text;
  }
  return std::nullopt;
}

void verify_same_model(const Wrapper& wrapper, const std::string& description, const ProcessGroup& group) {
  const Acting acting(Purpose::MODEL_COMPARISON, std::string(wrapper.name), comparison_mark(wrapper.name));
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<at::Tensor> lengths;
  for (std::size_t rank = 0; rank < ranks; ++rank) lengths.push_back(at::empty({1}, at::kLong));
  const auto length = static_cast<std::int64_t>(description.size());
  all_gather(lengths, at::empty({1}, at::kLong).fill_(length), group);

  std::vector<at::Tensor> texts;
  for (const at::Tensor& each : lengths)
    texts.push_back(at::empty({*each.const_data_ptr<std::int64_t>()}, at::kByte));
  at::Tensor mine = at::empty({length}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), description.data(), description.size());
  all_gather(texts, mine, group);

  std::vector<std::string> descriptions;
  for (const at::Tensor& text : texts) descriptions.push_back(text_of_bytes(text));
  if (const auto difference = first_difference(descriptions)) {
    throw Mismatch(
        lockstep::str(wrapper.on(group), ": every rank must wrap the same model, but ", *difference));
  }
}

}  // namespace lockstep
