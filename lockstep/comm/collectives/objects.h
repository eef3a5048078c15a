// Collectives for objects whose size only their owner knows: byte strings and JSON values. They are the
// counterpart of torch's collectives of pickled objects. Unlike those they are safe: received data are never
// executed.
//
//   std::vector<std::string> hosts = comm::all_gather_object(world, host_name());
//   nlohmann::json settings = {{"lr", 0.1}};                         // #include <nlohmann/json.hpp>
//   comm::broadcast_object(world, settings, /*root=*/0);
//   comm::send_object(world, nlohmann::json{{"loss", 0.5}}, /*destination=*/1);
//
// Collective  every rank of `group`; for send_object and recv_object, the two ranks. Sizes are exchanged
//             first, then the bytes: two collectives, or two messages.
// Ranks       ranks of the job, or GroupRank{1} for a rank of the group (peer.h). Lists are in the order of
//             the group's ranks.
// JSON        values arrive unchanged, with NaN and infinity, strings that are not UTF-8, and bytes
//             (json_bytes.h). A string of JSON text can be received as JSON.
// Size        at most MAX_OBJECT_BYTES.
// Blocks      until the result has arrived.
// Fails       like the verbs that carry the bytes. If an object is too large or cannot be sent as JSON
//             (json_bytes.h), its rank throws InvalidArgument, and the receivers throw FormatError with the
//             sender and the reason. No rank waits, and the group stays usable. Also FormatError if JSON was
//             expected and the bytes are not JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/base/visibility.h"
#include "lockstep/comm/collectives/peer.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {
namespace LOCKSTEP_PUBLIC comm {

inline constexpr std::size_t MAX_OBJECT_BYTES = std::size_t{1} << 30U;

// By rank, on every rank.
std::vector<std::string> all_gather_object(const ProcessGroup& group, const std::string& object);
std::vector<nlohmann::json> all_gather_object(const ProcessGroup& group, const nlohmann::json& object);

// By rank, on the root; empty elsewhere.
std::vector<std::string> gather_object(const ProcessGroup& group, const std::string& object, Peer root);
std::vector<nlohmann::json> gather_object(const ProcessGroup& group, const nlohmann::json& object, Peer root);

// The root's object, on every rank.
void broadcast_object(const ProcessGroup& group, std::string& object, Peer root);
void broadcast_object(const ProcessGroup& group, nlohmann::json& object, Peer root);

// Returns this rank's one of the root's objects. The root gives one per rank, other ranks none.
std::string scatter_object(const ProcessGroup& group, const std::vector<std::string>& objects, Peer root);
nlohmann::json scatter_object(const ProcessGroup& group, const std::vector<nlohmann::json>& objects,
                              Peer root);

void send_object(const ProcessGroup& group, const std::string& object, Peer destination, int tag = 0);
void send_object(const ProcessGroup& group, const nlohmann::json& object, Peer destination, int tag = 0);

struct ReceivedObject {
  std::string bytes;
  int source = -1;
};
// `source` may be ANY_SOURCE.
ReceivedObject recv_object(const ProcessGroup& group, Peer source, int tag = 0);
nlohmann::json recv_json_object(const ProcessGroup& group, Peer source, int tag = 0);

}  // namespace comm
}  // namespace lockstep
