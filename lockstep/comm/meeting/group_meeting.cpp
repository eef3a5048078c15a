#include "lockstep/comm/meeting/group_meeting.h"

#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/os/secret.h"

namespace lockstep {

std::vector<Message> GroupMeeting::exchange(const std::string& text, const std::vector<int>& fds,
                                            Deadline deadline) {
  if (!fds.empty()) throw InternalError("a meeting over a group passes no descriptors");
  if (text.size() > MAX_MESSAGE_BYTES - 16)
    throw InternalError(str("a meeting's message of ", text.size(), " bytes is too long"));
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(size()));
  comm::all_gather(group_, std::span<const std::uint64_t>(&mine, 1), std::span(sizes), /*async_op=*/true)
      .wait(deadline.remaining());
  std::vector<Message> all(sizes.size());
  std::vector<std::span<char>> outputs;
  for (std::size_t r = 0; r < sizes.size(); ++r) {
    if (sizes[r] > MAX_MESSAGE_BYTES)
      throw FormatError(str("meeting on group \"", group_.name(), "\", rank ", rank(), ": rank ", r,
                            " announces a message of ", sizes[r], " bytes; at most ", MAX_MESSAGE_BYTES,
                            " are allowed"));
    all[r].text.resize(sizes[r]);
    outputs.emplace_back(all[r].text);
  }
  std::vector<std::span<std::byte>> bytes;
  for (const auto& output : outputs) bytes.push_back(std::as_writable_bytes(output));
  comm::all_gather(group_, text.data(), text.size(), DType::UINT8, std::move(bytes), /*async_op=*/true)
      .wait(deadline.remaining());
  return all;
}

Hub machine_meeting(Meeting& meeting, Deadline deadline) {
  const std::string mine = meeting.rank() == 0 ? Secret::random().as_hex() : "";
  const std::vector<Message> all = meeting.exchange(mine, {}, deadline);
  return Hub::meet(meeting.rank(), meeting.size(), "meeting/" + all[0].text, deadline, {}, meeting.caller());
}

}  // namespace lockstep
