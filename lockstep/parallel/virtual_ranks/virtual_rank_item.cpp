#include "lockstep/parallel/virtual_ranks/virtual_rank_item.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/parallel/virtual_ranks/virtual_rank_states.h"

namespace lockstep {
namespace {

// "3.random_state" is that of virtual rank 3.
std::string prefix_of(int virtual_rank) { return str(virtual_rank, '.'); }

// 0 in a job without virtual ranks; otherwise every process has some.
int count_of(const std::vector<VirtualRankState>& states) {
  return states.empty() ? 0 : virtual_world_size();
}

class VirtualRankItem : public CheckpointItem {
 public:
  std::string_view kind() const override { return "state of each virtual rank"; }

  ItemContents contents() override {
    const std::vector<VirtualRankState> states = virtual_rank_states();
    ItemContents contents{.value = nlohmann::json(count_of(states))};
    for (const VirtualRankState& state : states)
      for (const auto& [name, tensor] : state.tensors) {
        const std::vector<std::int64_t> shape = tensor.sizes().vec();
        contents.shards.push_back({.name = prefix_of(state.virtual_rank) + name,
                                   .shape = shape,
                                   .offsets = std::vector<std::int64_t>(shape.size()),
                                   .tensor = tensor});
      }
    return contents;
  }

  void load(const LoadedItem& loaded) override {
    const int saved = loaded.value->get<int>();
    const int now = count_of(virtual_rank_states());
    if (saved != now)
      throw InvalidArgument(
          str("the checkpoint was saved with ", saved, " virtual ranks, and this job has ", now));
    std::map<int, NamedTensors> by_rank;
    for (const auto& [name, tensor] : loaded.tensors) {
      const std::size_t dot = name.find('.');
      by_rank[std::stoi(name.substr(0, dot))].emplace_back(name.substr(dot + 1), tensor);
    }
    std::vector<VirtualRankState> states;
    for (auto& [rank, tensors] : by_rank) states.push_back({rank, std::move(tensors)});
    if (!states.empty()) load_virtual_rank_states(states);
  }
};

}  // namespace

std::shared_ptr<CheckpointItem> virtual_rank_item() { return std::make_shared<VirtualRankItem>(); }

}  // namespace lockstep
