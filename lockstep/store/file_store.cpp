#include "lockstep/store/file_store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/running_clock.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::uint32_t DELETED = 0xffffffffU;
constexpr std::size_t MAX_FILE = std::size_t{64} << 20U;  // the store is for addresses, not for data

struct RecordHeader {
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;  // DELETED: the key is removed
};

}  // namespace

FileStore::Contents FileStore::read() const {
  const std::string bytes = file_.read(MAX_FILE);
  Contents contents;
  std::size_t& at = contents.bytes;
  while (bytes.size() - at >= sizeof(RecordHeader)) {
    RecordHeader header = {};
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    const std::size_t value_bytes = header.value_bytes == DELETED ? 0 : header.value_bytes;
    if (header.key_bytes > MAX_STORE_TEXT || value_bytes > MAX_STORE_TEXT) {
      throw StoreError("file store " + printable(file_.path()) +
                       " is not a store; use a new file for each job");
    }
    if (bytes.size() - at - sizeof(header) < header.key_bytes + value_bytes) break;
    const std::string key = bytes.substr(at + sizeof(header), header.key_bytes);
    if (header.value_bytes == DELETED) {
      contents.table.erase(key);
    } else {
      contents.table[key] = bytes.substr(at + sizeof(header) + header.key_bytes, value_bytes);
    }
    at += sizeof(header) + header.key_bytes + value_bytes;
  }
  return contents;
}

void FileStore::append(const Contents& contents, const std::string& key, const std::string* value) const {
  check_store_text(key, value == nullptr ? std::string() : *value);
  const RecordHeader header = {static_cast<std::uint32_t>(key.size()),
                               value == nullptr ? DELETED : static_cast<std::uint32_t>(value->size())};
  std::string record(reinterpret_cast<const char*>(&header), sizeof(header));
  record += key;
  if (value != nullptr) record += *value;
  file_.write_at(contents.bytes, record);
}

void FileStore::set(const std::string& key, const std::string& value) {
  const auto guard = file_.lock();
  append(read(), key, &value);
}

std::optional<std::string> FileStore::find(const std::string& key) {
  const auto guard = file_.lock();
  const Table table = read().table;
  const auto at = table.find(key);
  return at == table.end() ? std::nullopt : std::optional(at->second);
}

long FileStore::add(const std::string& key, long amount) {
  const auto guard = file_.lock();
  Contents contents = read();
  const long sum = table_add(contents.table, key, amount);
  append(contents, key, &contents.table[key]);
  return sum;
}

std::string FileStore::compare_set(const std::string& key, const std::string& expected,
                                   const std::string& desired) {
  check_store_text(key, desired);
  const auto guard = file_.lock();
  Contents contents = read();
  const Table before = contents.table;
  const std::string result = table_compare_set(contents.table, key, expected, desired);
  if (contents.table != before) append(contents, key, &contents.table[key]);
  return result;
}

bool FileStore::delete_key(const std::string& key) {
  const auto guard = file_.lock();
  const Contents contents = read();
  const bool existed = contents.table.count(key) > 0;
  if (existed) append(contents, key, nullptr);
  return existed;
}

std::size_t FileStore::num_keys() {
  const auto guard = file_.lock();
  return read().table.size();
}

// Network file systems do not report changes, so this polls.
void FileStore::wait_for_change(std::chrono::milliseconds at_most) {
  nap(std::min(at_most, std::chrono::milliseconds(10)));
}

}  // namespace lockstep
