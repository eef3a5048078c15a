#include "lockstep/comm/collectives/objects.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "lockstep/comm/collectives/all_gather.h"
#include "lockstep/comm/collectives/broadcast.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/comm/collectives/gather.h"
#include "lockstep/comm/collectives/point_to_point.h"
#include "lockstep/comm/collectives/scatter.h"

namespace lockstep::comm {
namespace {

using Bytes = std::span<std::uint8_t>;
using ConstBytes = std::span<const std::uint8_t>;

Bytes bytes_of(std::string& text) { return {reinterpret_cast<std::uint8_t*>(text.data()), text.size()}; }
ConstBytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
std::span<const std::uint64_t> one(const std::uint64_t& size) { return {&size, 1}; }

std::uint64_t size_to_send(Verb verb, const ProcessGroup& group, const std::string& object) {
  if (object.size() > MAX_OBJECT_BYTES)
    refuse(verb, group, "an object of ", object.size(), " bytes is too large; at most ", MAX_OBJECT_BYTES);
  return object.size();
}

std::string room_for(std::uint64_t size, const ProcessGroup& group, int sender) {
  if (size > MAX_OBJECT_BYTES) {
    throw FormatError(str("group \"", group.name(), "\", rank ", group.rank(), ": rank ", sender,
                          " announced an object of ", size, " bytes, more than ", MAX_OBJECT_BYTES));
  }
  return std::string(size, '\0');
}

std::vector<std::string> rooms_for(const std::vector<std::uint64_t>& sizes, const ProcessGroup& group) {
  std::vector<std::string> rooms;
  for (std::size_t r = 0; r < sizes.size(); ++r)
    rooms.push_back(room_for(sizes[r], group, static_cast<int>(r)));
  return rooms;
}

std::vector<Bytes> spans_of(std::vector<std::string>& rooms) {
  std::vector<Bytes> spans;
  for (std::string& room : rooms) spans.push_back(bytes_of(room));
  return spans;
}

nlohmann::json parse(const std::string& bytes, const ProcessGroup& group, int sender) {
  try {
    return nlohmann::json::parse(bytes);
  } catch (const nlohmann::json::parse_error& error) {
    throw FormatError(str("group \"", group.name(), "\", rank ", group.rank(), ": the object of rank ",
                          sender, ", ", bytes.size(), " bytes, is not JSON: ", printable(error.what())));
  }
}

std::vector<nlohmann::json> parse_all(const std::vector<std::string>& objects, const ProcessGroup& group) {
  std::vector<nlohmann::json> values;
  for (std::size_t r = 0; r < objects.size(); ++r)
    values.push_back(parse(objects[r], group, static_cast<int>(r)));
  return values;
}

}  // namespace

std::vector<std::string> all_gather_object(const ProcessGroup& group, const std::string& object) {
  const std::uint64_t size = size_to_send(Verb::ALL_GATHER, group, object);
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(group.size()));
  all_gather(group, one(size), std::span(sizes));
  std::vector<std::string> objects = rooms_for(sizes, group);
  all_gather(group, bytes_of(object), spans_of(objects));
  return objects;
}

std::vector<nlohmann::json> all_gather_object(const ProcessGroup& group, const nlohmann::json& object) {
  return parse_all(all_gather_object(group, object.dump()), group);
}

std::vector<std::string> gather_object(const ProcessGroup& group, const std::string& object, int root) {
  const std::uint64_t size = size_to_send(Verb::GATHER, group, object);
  std::vector<std::uint64_t> sizes(group.rank() == root ? static_cast<std::size_t>(group.size()) : 0);
  gather(group, one(size), std::span(sizes), root);
  std::vector<std::string> objects = rooms_for(sizes, group);
  gather(group, bytes_of(object), spans_of(objects), root);
  return objects;
}

std::vector<nlohmann::json> gather_object(const ProcessGroup& group, const nlohmann::json& object, int root) {
  return parse_all(gather_object(group, object.dump(), root), group);
}

void broadcast_object(const ProcessGroup& group, std::string& object, int root) {
  std::uint64_t size = group.rank() == root ? size_to_send(Verb::BROADCAST, group, object) : 0;
  broadcast(group, std::span(&size, 1), root);
  if (group.rank() != root && group.is_member()) object = room_for(size, group, root);
  broadcast(group, bytes_of(object), root);
}

void broadcast_object(const ProcessGroup& group, nlohmann::json& object, int root) {
  std::string text = group.rank() == root ? object.dump() : "";
  broadcast_object(group, text, root);
  if (group.rank() != root && group.is_member()) object = parse(text, group, root);
}

std::string scatter_object(const ProcessGroup& group, const std::vector<std::string>& objects, int root) {
  std::vector<std::uint64_t> sizes;
  std::vector<ConstBytes> inputs;
  for (const std::string& object : objects) {
    sizes.push_back(size_to_send(Verb::SCATTER, group, object));
    inputs.push_back(bytes_of(object));
  }
  std::uint64_t size = 0;
  scatter(group, std::span(&size, 1), std::span<const std::uint64_t>(sizes), root);
  std::string mine = room_for(size, group, root);
  scatter(group, bytes_of(mine), inputs, root);
  return mine;
}

nlohmann::json scatter_object(const ProcessGroup& group, const std::vector<nlohmann::json>& objects,
                              int root) {
  std::vector<std::string> texts;
  for (const auto& object : objects) texts.push_back(object.dump());
  const std::string mine = scatter_object(group, texts, root);
  return group.is_member() ? parse(mine, group, root) : nlohmann::json();
}

void send_object(const ProcessGroup& group, const std::string& object, int destination, int tag) {
  const std::uint64_t size = size_to_send(Verb::SEND, group, object);
  send(group, one(size), destination, tag);
  send(group, bytes_of(object), destination, tag);
}

void send_object(const ProcessGroup& group, const nlohmann::json& object, int destination, int tag) {
  send_object(group, object.dump(), destination, tag);
}

ReceivedObject recv_object(const ProcessGroup& group, int source, int tag) {
  std::uint64_t size = 0;
  ReceivedObject object;
  object.source = recv(group, std::span(&size, 1), source, tag);
  if (!group.is_member()) return object;
  object.bytes = room_for(size, group, object.source);
  recv(group, bytes_of(object.bytes), object.source, tag);
  return object;
}

nlohmann::json recv_json_object(const ProcessGroup& group, int source, int tag) {
  const ReceivedObject object = recv_object(group, source, tag);
  return group.is_member() ? parse(object.bytes, group, object.source) : nlohmann::json();
}

}  // namespace lockstep::comm
