#include "lockstep/c/objects.h"

#include <algorithm>

#include "lockstep/c/boundary.h"
#include "lockstep/c/group_table.h"
#include "lockstep/c/object_table.h"
#include "lockstep/comm/collectives/objects.h"

namespace comm = lockstep::comm;
using lockstep::c::byte_strings;
using lockstep::c::cleared;
using lockstep::c::find_group;
using lockstep::c::guarded;
using lockstep::c::objects;
using lockstep::c::required;

namespace {

// One byte more than the limit is as much as it takes for all ranks to learn that an object is too large.
std::string object_given(const void* bytes, size_t size) {
  return lockstep::c::bytes_given(bytes, std::min(size, comm::MAX_OBJECT_BYTES + 1));
}

// The objects of the root, and none elsewhere.
std::vector<std::string> objects_of_root(const lockstep::ProcessGroup& group, const void* const* bytes,
                                         const size_t* sizes, int root) {
  std::vector<std::string> list;
  if (!group.is_member() || group.ranks()[static_cast<size_t>(group.rank())] != root) return list;
  required(bytes, "bytes");
  required(sizes, "sizes");
  for (int r = 0; r < group.size(); ++r) list.push_back(object_given(bytes[r], sizes[r]));
  return list;
}

}  // namespace

int lockstep_all_gather_object(lockstep_group group, const void* bytes, size_t size,
                               lockstep_objects* objects_out) {
  return guarded("lockstep_all_gather_object", [&] {
    lockstep_objects& place = cleared(objects_out, "objects");
    const std::string mine = object_given(bytes, size);
    place = objects().add(byte_strings(comm::all_gather_object(find_group(group), mine)));
  });
}

int lockstep_gather_object(lockstep_group group, const void* bytes, size_t size, int root,
                           lockstep_objects* objects_out) {
  return guarded("lockstep_gather_object", [&] {
    lockstep_objects& place = cleared(objects_out, "objects");
    const std::string mine = object_given(bytes, size);
    place = objects().add(byte_strings(comm::gather_object(find_group(group), mine, root)));
  });
}

int lockstep_broadcast_object(lockstep_group group, const void* bytes, size_t size, int root,
                              lockstep_objects* objects_out) {
  return guarded("lockstep_broadcast_object", [&] {
    lockstep_objects& place = cleared(objects_out, "objects");
    const lockstep::ProcessGroup found = find_group(group);
    std::string object = bytes == nullptr ? std::string() : object_given(bytes, size);
    comm::broadcast_object(found, object, root);
    place = objects().add(
        byte_strings(found.is_member() ? std::vector{std::move(object)} : std::vector<std::string>()));
  });
}

int lockstep_scatter_object(lockstep_group group, const void* const* bytes, const size_t* sizes, int root,
                            lockstep_objects* objects_out) {
  return guarded("lockstep_scatter_object", [&] {
    lockstep_objects& place = cleared(objects_out, "objects");
    const lockstep::ProcessGroup found = find_group(group);
    std::string mine = comm::scatter_object(found, objects_of_root(found, bytes, sizes, root), root);
    place = objects().add(
        byte_strings(found.is_member() ? std::vector{std::move(mine)} : std::vector<std::string>()));
  });
}

int lockstep_send_object(lockstep_group group, const void* bytes, size_t size, int destination, int tag) {
  return guarded("lockstep_send_object",
                 [&] { comm::send_object(find_group(group), object_given(bytes, size), destination, tag); });
}

int lockstep_recv_object(lockstep_group group, int source, int tag, int* from,
                         lockstep_objects* objects_out) {
  return guarded("lockstep_recv_object", [&] {
    lockstep_objects& place = cleared(objects_out, "objects");
    const lockstep::ProcessGroup found = find_group(group);
    comm::ReceivedObject received = comm::recv_object(found, source, tag);
    if (from != nullptr) *from = received.source;
    place = objects().add(byte_strings(found.is_member() ? std::vector{std::move(received.bytes)}
                                                         : std::vector<std::string>()));
  });
}

int lockstep_objects_count(lockstep_objects list, size_t* count) {
  return guarded("lockstep_objects_count", [&] { required(count, "count") = objects().get(list)->size(); });
}

int lockstep_objects_get(lockstep_objects list, size_t index, const void** bytes, size_t* size) {
  return guarded("lockstep_objects_get", [&] {
    const lockstep::c::ByteStrings strings = objects().get(list);
    if (index >= strings->size()) {
      throw lockstep::c::Failure(
          LOCKSTEP_ERROR_INVALID_ARGUMENT,
          lockstep::str("there is no object ", index, ", the list has ", strings->size()));
    }
    required(bytes, "bytes") = (*strings)[index].data();
    required(size, "size") = (*strings)[index].size();
  });
}

int lockstep_objects_free(lockstep_objects list) {
  return guarded("lockstep_objects_free", [&] { objects().take(list); });
}
