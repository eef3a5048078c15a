#include "lockstep/comm/collectives/objects.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/collectives/gather.h"
#include "lockstep/comm/collectives/json_bytes.h"
#include "lockstep/comm/collectives/point_to_point.h"
#include "lockstep/comm/collectives/scatter.h"

namespace lockstep::comm {
namespace {

using Bytes = std::span<std::uint8_t>;
using ConstBytes = std::span<const std::uint8_t>;
using Json = nlohmann::json;

// An object to send. If its owner cannot send it, the reason takes its place, because other ranks wait for a
// message.
//
//   size of the bytes, and REFUSED if they are a reason    ->    the bytes
class Parcel {
 public:
  static constexpr std::uint64_t REFUSED = std::uint64_t{1} << 63U;

  Parcel() = default;
  // Made from this rank's own object.
  explicit Parcel(const std::string& object) : bytes_(&object) { check_size(); }
  explicit Parcel(const Json& object) {
    try {
      own_ = json_bytes(object);
      check_size();
    } catch (const InvalidArgument& error) {
      refuse(str("the object cannot be sent as JSON: ", error.what()));
    }
  }
  static Parcel refused(std::string reason) {
    Parcel parcel;
    parcel.refuse(std::move(reason));
    return parcel;
  }

  std::uint64_t announced() const { return bytes().size() | (is_refused_ ? REFUSED : 0); }
  ConstBytes span() const { return {reinterpret_cast<const std::uint8_t*>(bytes().data()), bytes().size()}; }
  bool is_refused() const { return is_refused_; }
  const std::string& bytes() const { return bytes_ != nullptr ? *bytes_ : own_; }

 private:
  void check_size() {
    if (bytes().size() > MAX_OBJECT_BYTES)
      refuse(str("an object of ", bytes().size(), " bytes is too large; at most ", MAX_OBJECT_BYTES));
  }
  void refuse(std::string reason) {
    is_refused_ = true;
    bytes_ = nullptr;
    own_ = std::move(reason);
  }

  const std::string* bytes_ = nullptr;  // the caller's string; null: own_
  std::string own_;
  bool is_refused_ = false;
};

// A parcel that another rank sends to this one.
class Arrival {
 public:
  Arrival(std::uint64_t announced, const ProcessGroup& group, int sender)
      : group_(group), sender_(sender), is_refused_((announced & Parcel::REFUSED) != 0) {
    const std::uint64_t size = announced & ~Parcel::REFUSED;
    if (size > MAX_OBJECT_BYTES)
      fail(str(sender_text(), " announced an object of ", size, " bytes, more than ", MAX_OBJECT_BYTES));
    bytes_.resize(size);
  }

  Bytes span() { return {reinterpret_cast<std::uint8_t*>(bytes_.data()), bytes_.size()}; }
  void take(std::string& object) {
    check();
    object = std::move(bytes_);
  }
  void take(Json& object) {
    check();
    try {
      object = json_of(bytes_);
    } catch (const FormatError& error) {
      fail(str("the object of ", sender_text(), ", ", bytes_.size(), " bytes, is not JSON: ", error.what()));
    }
  }

 private:
  void check() const {
    if (is_refused_) fail(str(sender_text(), " has no object to send: ", printable(bytes_)));
  }
  std::string sender_text() const { return ranks_text(group_, {sender_}); }
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(
        str("group \"", group_.name(), "\", rank ", group_.rank(), " of ", group_.size(), ": ", what));
  }

  const ProcessGroup& group_;
  int sender_;
  bool is_refused_;
  std::string bytes_;
};

// Called after the exchange, so that the other ranks have learned the reason.
void check_own(const Parcel& parcel, const char* call, const ProcessGroup& group) {
  if (parcel.is_refused()) refuse(call, group, parcel.bytes());
}

std::span<const std::uint64_t> one(const std::uint64_t& size) { return {&size, 1}; }

std::vector<Arrival> arrivals(const std::vector<std::uint64_t>& announced, const ProcessGroup& group) {
  std::vector<Arrival> all;
  for (std::size_t r = 0; r < announced.size(); ++r)
    all.emplace_back(announced[r], group, static_cast<int>(r));
  return all;
}

std::vector<Bytes> spans_of(std::vector<Arrival>& arrivals) {
  std::vector<Bytes> spans;
  for (Arrival& arrival : arrivals) spans.push_back(arrival.span());
  return spans;
}

// A part of the library that sends objects has already set its own purpose.
Purpose purpose_here() {
  const Purpose current = Acting::current().purpose;
  return current == Purpose::PROGRAM ? Purpose::OBJECT : current;
}

template <typename Object> std::vector<Object> take_all(std::vector<Arrival>& arrivals) {
  std::vector<Object> objects(arrivals.size());
  for (std::size_t r = 0; r < arrivals.size(); ++r) arrivals[r].take(objects[r]);
  return objects;
}

template <typename Object>
std::vector<Object> all_gather_any(const ProcessGroup& group, const Object& object) {
  const Acting acting(purpose_here());
  const Parcel parcel(object);
  const std::uint64_t mine = parcel.announced();
  std::vector<std::uint64_t> announced(static_cast<std::size_t>(group.size()));
  all_gather(group, one(mine), std::span(announced));
  std::vector<Arrival> all = arrivals(announced, group);
  all_gather(group, parcel.span(), spans_of(all));
  check_own(parcel, "all_gather_object", group);
  return take_all<Object>(all);
}

template <typename Object>
std::vector<Object> gather_any(const ProcessGroup& group, const Object& object, Peer root) {
  const Acting acting(purpose_here());
  const Parcel parcel(object);
  const GroupRank at = {root.in(group, "gather_object", "root")};
  const std::uint64_t mine = parcel.announced();
  std::vector<std::uint64_t> announced(group.rank() == at.rank ? static_cast<std::size_t>(group.size()) : 0);
  gather(group, one(mine), std::span(announced), at);
  std::vector<Arrival> all = arrivals(announced, group);
  gather(group, parcel.span(), spans_of(all), at);
  check_own(parcel, "gather_object", group);
  return take_all<Object>(all);
}

template <typename Object> void broadcast_any(const ProcessGroup& group, Object& object, Peer root) {
  const Acting acting(purpose_here());
  const GroupRank at = {root.in(group, "broadcast_object", "root")};
  const bool is_root = group.rank() == at.rank;
  const Parcel parcel = is_root ? Parcel(object) : Parcel();
  std::uint64_t announced = parcel.announced();
  broadcast(group, std::span(&announced, 1), at);
  if (is_root) {
    const ConstBytes given = parcel.span();
    broadcast(group, Bytes(const_cast<std::uint8_t*>(given.data()), given.size()), at);
    return check_own(parcel, "broadcast_object", group);
  }
  Arrival arrival(announced, group, at.rank);
  broadcast(group, arrival.span(), at);
  arrival.take(object);
}

// The parcel for each rank. If one object cannot be sent, all ranks get its error, so that the root has one
// error too.
template <typename Object>
std::vector<Parcel> parcels_of(const ProcessGroup& group, const std::vector<Object>& objects, bool is_root) {
  const auto ranks = static_cast<std::size_t>(group.size());
  if (is_root && objects.size() != ranks) {
    return std::vector<Parcel>(ranks, Parcel::refused(str("one object per rank is needed, ", ranks,
                                                          "; there are ", objects.size())));
  }
  std::vector<Parcel> parcels;
  for (const Object& object : objects) parcels.emplace_back(object);
  for (const Parcel& parcel : parcels) {
    if (parcel.is_refused()) return std::vector<Parcel>(ranks, parcel);
  }
  return parcels;
}

template <typename Object>
Object scatter_any(const ProcessGroup& group, const std::vector<Object>& objects, Peer root) {
  const Acting acting(purpose_here());
  const GroupRank at = {root.in(group, "scatter_object", "root")};
  const std::vector<Parcel> parcels = parcels_of(group, objects, group.rank() == at.rank);
  std::vector<std::uint64_t> announced;
  std::vector<ConstBytes> inputs;
  for (const Parcel& parcel : parcels) {
    announced.push_back(parcel.announced());
    inputs.push_back(parcel.span());
  }
  std::uint64_t size = 0;
  scatter(group, std::span(&size, 1), std::span<const std::uint64_t>(announced), at);
  Arrival arrival(size, group, at.rank);
  scatter(group, arrival.span(), inputs, at);
  if (!parcels.empty()) check_own(parcels.front(), "scatter_object", group);
  Object mine;
  arrival.take(mine);
  return mine;
}

template <typename Object>
void send_any(const ProcessGroup& group, const Object& object, Peer destination, int tag) {
  const Parcel parcel(object);
  const GroupRank to = {destination.in(group, "send_object", "destination")};
  const std::uint64_t announced = parcel.announced();
  send(group, one(announced), to, tag);
  send(group, parcel.span(), to, tag);
  check_own(parcel, "send_object", group);
}

// Returns the sender's rank within the job.
template <typename Object> int recv_any(const ProcessGroup& group, Object& object, Peer source, int tag) {
  std::uint64_t announced = 0;
  const int from = recv(group, std::span(&announced, 1), source, tag);
  Arrival arrival(announced, group, Peer(from).in(group, "recv_object", "source"));
  recv(group, arrival.span(), from, tag);
  arrival.take(object);
  return from;
}

}  // namespace

std::vector<std::string> all_gather_object(const ProcessGroup& group, const std::string& object) {
  if (!takes_part("all_gather_object", group)) return {};
  return all_gather_any(group, object);
}
std::vector<Json> all_gather_object(const ProcessGroup& group, const Json& object) {
  if (!takes_part("all_gather_object", group)) return {};
  return all_gather_any(group, object);
}

std::vector<std::string> gather_object(const ProcessGroup& group, const std::string& object, Peer root) {
  if (!takes_part("gather_object", group)) return {};
  return gather_any(group, object, root);
}
std::vector<Json> gather_object(const ProcessGroup& group, const Json& object, Peer root) {
  if (!takes_part("gather_object", group)) return {};
  return gather_any(group, object, root);
}

void broadcast_object(const ProcessGroup& group, std::string& object, Peer root) {
  if (takes_part("broadcast_object", group)) broadcast_any(group, object, root);
}
void broadcast_object(const ProcessGroup& group, Json& object, Peer root) {
  if (takes_part("broadcast_object", group)) broadcast_any(group, object, root);
}

std::string scatter_object(const ProcessGroup& group, const std::vector<std::string>& objects, Peer root) {
  if (!takes_part("scatter_object", group)) return {};
  return scatter_any(group, objects, root);
}
Json scatter_object(const ProcessGroup& group, const std::vector<Json>& objects, Peer root) {
  if (!takes_part("scatter_object", group)) return {};
  return scatter_any(group, objects, root);
}

void send_object(const ProcessGroup& group, const std::string& object, Peer destination, int tag) {
  if (takes_part("send_object", group)) send_any(group, object, destination, tag);
}
void send_object(const ProcessGroup& group, const Json& object, Peer destination, int tag) {
  if (takes_part("send_object", group)) send_any(group, object, destination, tag);
}

ReceivedObject recv_object(const ProcessGroup& group, Peer source, int tag) {
  ReceivedObject object;
  if (takes_part("recv_object", group)) object.source = recv_any(group, object.bytes, source, tag);
  return object;
}
Json recv_json_object(const ProcessGroup& group, Peer source, int tag) {
  Json object;
  if (takes_part("recv_json_object", group)) recv_any(group, object, source, tag);
  return object;
}

}  // namespace lockstep::comm
