#include "lockstep/compat/deepspeed/checkpoint_tags.h"

#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/objects.h"
#include "lockstep/os/atomic_file.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::compat::deepspeed {
namespace {

using Json = nlohmann::json;

bool is_tag(const std::string& tag) {
  return !tag.empty() && tag != "." && tag != ".." && tag.find('/') == std::string::npos &&
         tag == printable(tag);
}

// Rank 0 acts; every rank has what it answered, or throws its error.
template <typename Act> Json on_rank_zero(const ProcessGroup& group, const Act& act) {
  Json outcome;
  if (group.rank() == 0) {
    try {
      outcome = {{"answer", act()}};
    } catch (const SystemError& error) {
      outcome = {{"failed", error.what()}, {"errno", error.error_number()}};
    }
  }
  comm::broadcast_object(group, outcome, GroupRank{0});
  if (outcome.contains("failed"))
    throw SystemError::with_message(outcome["failed"].get<std::string>(), outcome["errno"].get<int>());
  return outcome["answer"];
}

}  // namespace

void require_same_tag(const ProcessGroup& group, const std::string& tag) {
  if (!is_tag(tag))
    throw InvalidArgument(
        lockstep::str("DeepSpeed engine: the tag ", in_quotes(tag), " is not the name of a folder"));
  const auto tags = comm::all_gather_object(group, tag);
  for (std::size_t rank = 0; rank < tags.size(); ++rank) {
    if (tags[rank] != tags[0])
      throw Mismatch(lockstep::str("DeepSpeed engine: a checkpoint has one tag, but rank 0 gives ",
                                   in_quotes(tags[0]), " and rank ", rank, ' ', in_quotes(tags[rank])));
  }
}

void write_latest(const std::string& folder, const std::string& tag, const ProcessGroup& group) {
  on_rank_zero(group, [&] {
    AtomicFile file(folder + "/latest");
    file.write(std::as_bytes(std::span(tag)));
    file.commit();
    return Json();
  });
}

std::optional<std::string> read_latest(const std::string& folder, const ProcessGroup& group) {
  const std::string path = folder + "/latest";
  const Json answer = on_rank_zero(group, [&]() -> Json {
    try {
      return read_plain_file(path);
    } catch (const SystemError& error) {
      if (error.error_number() != ENOENT) throw;
      return {};
    }
  });
  if (answer.is_null()) return std::nullopt;
  std::string tag = answer.get<std::string>();
  while (!tag.empty() && tag.back() == '\n') tag.pop_back();
  if (!is_tag(tag)) throw FormatError(lockstep::str(path, " holds ", in_quotes(tag), ", which is not a tag"));
  return tag;
}

}  // namespace lockstep::compat::deepspeed
