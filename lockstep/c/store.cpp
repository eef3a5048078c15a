#include "lockstep/c/store.h"

#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/c/boundary.h"
#include "lockstep/c/object_table.h"
#include "lockstep/c/store_table.h"
#include "lockstep/store/file_store.h"
#include "lockstep/store/tcp_store_server.h"

using lockstep::STORE_TIMEOUT;
using lockstep::c::cleared;
using lockstep::c::find_store;
using lockstep::c::guarded;
using lockstep::c::milliseconds;
using lockstep::c::required;
using lockstep::c::stores;

namespace {

// The server with this process's own store, which must end before it.
struct Served {
  explicit Served(const lockstep::TcpStoreServerOptions& options)
      : server(options), store(server.open({.here = options.address})) {}
  lockstep::TcpStoreServer server;
  std::unique_ptr<lockstep::TcpStore> store;
};

lockstep::Secret secret_in(const char* file) {
  return lockstep::Secret::from_file(&required(file, "secret_file"));
}

}  // namespace

int lockstep_store_open_file(const char* path, lockstep_store* store) {
  return guarded("lockstep_store_open_file", [&] {
    lockstep_store& place = cleared(store, "store");
    place = stores().add(std::make_shared<lockstep::FileStore>(&required(path, "path")));
  });
}

int lockstep_store_serve(const char* address, int port, const char* secret_file, int* chosen_port,
                         lockstep_store* store) {
  return guarded("lockstep_store_serve", [&] {
    lockstep_store& place = cleared(store, "store");
    auto served = std::make_shared<Served>(
        lockstep::TcpStoreServerOptions{.secret = secret_in(secret_file),
                                        .address = address == nullptr ? "127.0.0.1" : address,
                                        .port = port});
    if (chosen_port != nullptr) *chosen_port = served->server.address().port;
    lockstep::Store* const inner = served->store.get();
    place = stores().add(std::shared_ptr<lockstep::Store>(std::move(served), inner));
  });
}

int lockstep_store_connect(const char* host, int port, const char* secret_file, int64_t timeout_ms,
                           lockstep_store* store) {
  return guarded("lockstep_store_connect", [&] {
    lockstep_store& place = cleared(store, "store");
    const auto timeout = milliseconds(timeout_ms, "timeout_ms").value_or(STORE_TIMEOUT);
    place = stores().add(std::make_shared<lockstep::TcpStore>(
        lockstep::TcpStoreOptions{.host = &required(host, "host"),
                                  .port = port,
                                  .secret = secret_in(secret_file),
                                  .deadline = lockstep::Deadline::in(timeout)}));
  });
}

int lockstep_store_free(lockstep_store store) {
  return guarded("lockstep_store_free", [&] { stores().take(store); });
}

int lockstep_store_set(lockstep_store store, const char* key, const void* bytes, size_t size) {
  return guarded("lockstep_store_set", [&] {
    if (size > lockstep::MAX_STORE_TEXT) {
      throw lockstep::StoreError(lockstep::str("lockstep_store_set: a value of ", size,
                                               " bytes is too large; at most ", lockstep::MAX_STORE_TEXT));
    }
    find_store(store)->set(&required(key, "key"), lockstep::c::bytes_given(bytes, size));
  });
}

int lockstep_store_get(lockstep_store store, const char* key, int64_t timeout_ms, lockstep_objects* value) {
  return guarded("lockstep_store_get", [&] {
    lockstep_objects& place = cleared(value, "value");
    const auto timeout = milliseconds(timeout_ms, "timeout_ms").value_or(STORE_TIMEOUT);
    std::string found = find_store(store)->get(&required(key, "key"), timeout);
    place = lockstep::c::objects().add(lockstep::c::byte_strings({std::move(found)}));
  });
}

int lockstep_store_add(lockstep_store store, const char* key, int64_t amount, int64_t* sum) {
  return guarded("lockstep_store_add", [&] {
    const int64_t result = find_store(store)->add(&required(key, "key"), amount);
    if (sum != nullptr) *sum = result;
  });
}
