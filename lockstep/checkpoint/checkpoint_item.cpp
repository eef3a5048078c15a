#include "lockstep/checkpoint/checkpoint_item.h"

namespace lockstep {

ItemContents StateDictItem::contents() {
  ItemContents contents;
  (of_each_rank_ ? contents.rank_tensors : contents.tensors) = save_();
  return contents;
}

void StateDictItem::load(const LoadedItem& loaded) {
  if (of_each_rank_ && loaded.rank >= loaded.saved_ranks) return;  // noted by the loader
  load_(of_each_rank_ ? loaded.rank_tensors : loaded.tensors);
}

ItemContents ValueItem::contents() {
  ItemContents contents;
  (of_each_rank_ ? contents.rank_value : contents.value) = save_();
  return contents;
}

void ValueItem::load(const LoadedItem& loaded) {
  const auto& value = of_each_rank_ ? loaded.rank_value : loaded.value;
  if (value) load_(*value);
}

}  // namespace lockstep
