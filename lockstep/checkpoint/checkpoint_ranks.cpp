#include "lockstep/checkpoint/checkpoint_ranks.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/comm/purpose.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* FAILURE = "failure";
constexpr const char* RESULT = "result";

}  // namespace

CheckpointRanks::CheckpointRanks(std::string call, std::optional<ProcessGroup> group)
    : call_(std::move(call)), group_(std::move(group)) {}

std::vector<json> CheckpointRanks::all_gather(const json& mine) const {
  if (!group_) return {mine};
  const Acting acting(Purpose::CHECKPOINT);
  return comm::all_gather_object(*group_, mine);
}

std::vector<json> CheckpointRanks::all_try(const std::function<json()>& act) const {
  json mine;
  try {
    mine[RESULT] = act();
  } catch (const std::exception& error) {
    mine[FAILURE] = failure_of(error);
  }
  std::vector<json> all = all_gather(mine);
  for (const json& one : all)
    if (one.contains(FAILURE)) throw_failure(one.at(FAILURE));
  std::vector<json> results;
  for (json& one : all) results.push_back(std::move(one.at(RESULT)));
  return results;
}

json CheckpointRanks::on_rank_0(const std::function<json()>& act) const {
  json answer;
  if (rank() == 0) {
    try {
      answer[RESULT] = act();
    } catch (const std::exception& error) {
      answer[FAILURE] = failure_of(error);
    }
  }
  if (group_) {
    const Acting acting(Purpose::CHECKPOINT);
    comm::broadcast_object(*group_, answer, GroupRank{0});
  }
  if (answer.contains(FAILURE)) throw_failure(answer.at(FAILURE));
  return std::move(answer.at(RESULT));
}

json CheckpointRanks::failure_of(const std::exception& error) const {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  const auto* const system = dynamic_cast<const SystemError*>(&error);
  return {{"code", static_cast<std::uint32_t>(ours != nullptr ? ours->code() : ErrorCode::INTERNAL)},
          {"errno", system != nullptr ? system->error_number() : 0},
          {"text", error.what()},
          {"rank", rank()}};
}

void CheckpointRanks::throw_failure(const json& failure) const {
  const auto code = static_cast<ErrorCode>(failure.at("code").get<std::uint32_t>());
  const int rank = failure.at("rank").get<int>();
  const std::string text =
      str(call_, ", rank ", rank, " of ", size(), ": ", failure.at("text").get<std::string>());
  if (code == ErrorCode::SYSTEM) throw SystemError::with_message(text, failure.at("errno").get<int>());
  throw_error(code, text, rank);
}

std::optional<ProcessGroup> checkpoint_group(const std::optional<ProcessGroup>& given,
                                             std::string_view call) {
  if (given) given->require_member(call);
  if (given) return given;
  return is_initialized() ? std::optional(world()) : std::nullopt;
}

}  // namespace lockstep
