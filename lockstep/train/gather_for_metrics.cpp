#include "lockstep/train/gather_for_metrics.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/virtual_ranks.h"
#include "lockstep/tensor/collectives.h"

namespace lockstep {
namespace {

using Numbers = std::vector<std::int64_t>;

// The contribution of one rank: its rows without padding, and for each its place in the epoch and the item's
// index.
struct Share {
  at::Tensor rows;
  Numbers places;  // position and index, alternating
};

std::int64_t count_of(const at::Tensor& rows) { return rows.defined() && rows.dim() > 0 ? rows.size(0) : 0; }

// Returns the rows in the order of the sampler's indices: the first replica's batches, then the second's.
at::Tensor rows_of(const std::vector<at::Tensor>& batches, std::size_t replicas) {
  if (batches.size() % replicas != 0)
    throw InvalidArgument(lockstep::str("there are ", batches.size(), " batches of ", replicas,
                                        " virtual ranks, which have equally many; give all that the loader "
                                        "handed out"));
  std::vector<at::Tensor> ordered;
  for (std::size_t replica = 0; replica < replicas; ++replica)
    for (std::size_t i = replica; i < batches.size(); i += replicas) {
      if (batches[i].defined() && batches[i].dim() == 0)
        throw InvalidArgument("a batch has no dimensions; give it one: unsqueeze(0)");
      if (batches[i].defined()) ordered.push_back(batches[i].detach());
    }
  return ordered.empty() ? at::Tensor() : at::cat(ordered);
}

Share share_of(const at::Tensor& rows, const DistributedSampler& sampler, bool by_batches) {
  if (current_virtual_rank())
    throw InvalidArgument("called in the turn of a virtual rank; gather behind the loop over virtual ranks");
  if (rows.defined() && rows.dim() == 0)
    throw InvalidArgument("the tensor has no dimensions; give it one: unsqueeze(0)");
  const auto replicas = static_cast<std::int64_t>(sampler.replicas());
  const std::int64_t count = count_of(rows);
  const std::int64_t each = count / replicas;
  const std::int64_t position = sampler.state().position;
  const bool is_whole = count == replicas * sampler.size();
  const bool is_last = (replicas == 1 || by_batches) && count % replicas == 0 && each <= position;
  if (!is_whole && !is_last)
    throw InvalidArgument(
        lockstep::str("there are ", count, " rows, and of this epoch's ", replicas * sampler.size(),
                      " items this rank has had ", replicas * position,
                      "; give the rows of the batch that the loader handed out last, or of the whole epoch"));
  const std::int64_t start = is_whole ? 0 : position - each;
  const Numbers positions = sampler.positions();
  const Numbers indices = sampler.indices();
  Share share;
  Numbers kept;
  for (std::int64_t row = 0; row < count; ++row) {
    const auto i = static_cast<std::size_t>(row / std::max<std::int64_t>(each, 1) * sampler.size() + start +
                                            row % std::max<std::int64_t>(each, 1));
    if (positions[i] >= sampler.state().dataset_size) continue;  // padding
    kept.push_back(row);
    share.places.insert(share.places.end(), {positions[i], indices[i]});
  }
  share.rows = rows;
  if (kept.size() != static_cast<std::size_t>(count))
    share.rows = rows.detach().index_select(0, at::tensor(kept, at::kLong).to(rows.device()));
  return share;
}

// What ranks tell each other before they exchange rows.
nlohmann::json description_of(const Share& share) {
  if (!share.rows.defined()) return {{"rows", 0}};
  const at::Tensor& rows = share.rows;
  return {{"rows", rows.size(0)},
          {"shape", rows.sizes().slice(1).vec()},
          {"dtype", static_cast<int>(rows.scalar_type())},
          {"device", static_cast<int>(rows.device().type())}};
}

std::string words_of(const nlohmann::json& description) {
  return lockstep::str(c10::toString(static_cast<at::ScalarType>(description.at("dtype").get<int>())),
                       " rows of shape ", description.at("shape").dump());
}

// Returns the common description of all ranks' rows. That of a rank without rows does not count if another
// rank has some.
nlohmann::json common_description(const std::vector<nlohmann::json>& all, const std::string& place) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].contains("problem"))
      throw InvalidArgument(
          lockstep::str(place, ": rank ", r, ": ", all[r].at("problem").get<std::string>()));
  }
  std::size_t first = all.size();
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].at("rows") == 0) continue;
    if (first == all.size()) first = r;
    if (all[r].at("shape") == all[first].at("shape") && all[r].at("dtype") == all[first].at("dtype"))
      continue;
    throw Mismatch(lockstep::str(place, ": rank ", r, " has ", words_of(all[r]), ", rank ", first, " has ",
                                 words_of(all[first]), "; give the same output on all ranks"));
  }
  const auto defined =
      std::find_if(all.begin(), all.end(), [](const auto& d) { return d.contains("dtype"); });
  if (first < all.size()) return all[first];
  return defined != all.end()
             ? *defined
             : nlohmann::json{{"shape", Numbers()}, {"dtype", static_cast<int>(at::kFloat)}, {"device", 0}};
}

std::vector<at::Tensor> gather_rows(const at::Tensor& mine, const Numbers& counts,
                                    const ProcessGroup& group) {
  std::vector<at::Tensor> all;
  auto shape = mine.sizes().vec();
  for (const std::int64_t count : counts) {
    shape[0] = count;
    all.push_back(at::empty(shape, mine.options()));
  }
  all_gather(all, mine, group);
  return all;
}

// Returns the position at which the epoch's order ends, for all ranks.
std::int64_t end_of(const DistributedSampler& sampler) {
  const DistributedSamplerState& state = sampler.state();
  return state.drop_last ? state.dataset_size / state.num_replicas * state.num_replicas : state.dataset_size;
}

// Returns the rows' order by index. Throws unless their positions are those of whole rounds over all ranks.
at::Tensor order_of(const at::Tensor& places, const Numbers& counts, const DistributedSampler& sampler,
                    const std::string& place) {
  const auto* const pair = places.const_data_ptr<std::int64_t>();
  std::vector<std::size_t> rows(static_cast<std::size_t>(places.size(0)));
  std::iota(rows.begin(), rows.end(), 0);
  std::sort(rows.begin(), rows.end(),
            [&](std::size_t a, std::size_t b) { return pair[2 * a] < pair[2 * b]; });
  const std::int64_t round = sampler.state().num_replicas;
  std::int64_t next = rows.empty() ? 0 : pair[2 * rows[0]] / round * round;
  const auto refuse = [&](const char* where) {
    std::string numbers;
    for (const std::int64_t count : counts) numbers += lockstep::str(numbers.empty() ? "" : ", ", count);
    throw Mismatch(lockstep::str(place, ": item ", next, " of the epoch's order is ", where,
                                 ", and the ranks have ", numbers,
                                 " rows; give the same batch on all ranks, of a sampler whose num_replicas "
                                 "are this group's ranks"));
  };
  for (const std::size_t row : rows) {
    const std::int64_t position = pair[2 * row];
    if (position < next) --next, refuse("on two ranks");
    if (position > next) refuse("on none");
    ++next;
  }
  if (next % round != 0 && next != end_of(sampler)) refuse("on none");
  std::sort(rows.begin(), rows.end(),
            [&](std::size_t a, std::size_t b) { return pair[2 * a + 1] < pair[2 * b + 1]; });
  const Numbers order(rows.begin(), rows.end());
  return at::tensor(order, at::kLong);
}

template <typename Make>
at::Tensor gather(const Make& make_share, const DistributedSampler& sampler, const ProcessGroup& group) {
  group.require_member("gather_for_metrics");
  const Acting acting(Purpose::MEAN);
  const auto place = lockstep::str("gather_for_metrics on group \"", group.name(), "\", rank ", group.rank(),
                                   " of ", group.size());
  Share share;
  nlohmann::json mine;
  try {
    share = make_share();
    mine = description_of(share);
  } catch (const std::exception& error) {  // all ranks are told
    mine = {{"problem", error.what()}};
  }
  const std::vector<nlohmann::json> all = comm::all_gather_object(group, mine);
  const nlohmann::json common = common_description(all, place);
  Numbers counts;
  for (const nlohmann::json& description : all) counts.push_back(description.at("rows").get<std::int64_t>());
  const auto own = counts[static_cast<std::size_t>(group.rank())];
  if (own == 0) {
    auto shape = common.at("shape").get<Numbers>();
    shape.insert(shape.begin(), 0);
    const at::Device device(static_cast<at::DeviceType>(common.at("device").get<int>()));
    share.rows = at::empty(
        shape, at::TensorOptions(device).dtype(static_cast<at::ScalarType>(common.at("dtype").get<int>())));
  }
  const at::Tensor places = at::tensor(share.places, at::kLong).view({own, 2});
  const at::Tensor order = order_of(at::cat(gather_rows(places, counts, group)), counts, sampler, place);
  const at::Tensor rows = at::cat(gather_rows(share.rows.detach().contiguous(), counts, group));
  return rows.index_select(0, order.to(rows.device()));
}

}  // namespace

at::Tensor gather_for_metrics(const at::Tensor& rows, const DistributedSampler& sampler,
                              const ProcessGroup& group) {
  return gather([&] { return share_of(rows, sampler, /*by_batches=*/false); }, sampler, group);
}

at::Tensor gather_for_metrics(const std::vector<at::Tensor>& batches, const DistributedSampler& sampler,
                              const ProcessGroup& group) {
  return gather([&] { return share_of(rows_of(batches, sampler.replicas()), sampler, /*by_batches=*/true); },
                sampler, group);
}

}  // namespace lockstep
