#include "lockstep/store/file_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::uint32_t DELETED = 0xffffffffU;
constexpr std::size_t MAX_TEXT = std::size_t{1} << 20U;   // of a key or value
constexpr std::size_t MAX_FILE = std::size_t{64} << 20U;  // the store carries addresses, not data

struct RecordHeader {
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;  // DELETED: the key is removed
};

}  // namespace

// Open file description locks: unlike classic fcntl locks they also exclude other threads and other FileStores here.
class FileStore::Lock {
 public:
  Lock(const FileStore& store, short type) : fd_(store.file_.get()) {
    if (!change(type)) store.fail("cannot lock");
  }
  ~Lock() { change(F_UNLCK); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  bool change(short type) const {
    struct flock range = {};
    range.l_type = type;
    range.l_whence = SEEK_SET;
    while (fcntl(fd_, F_OFD_SETLKW, &range) != 0) {
      if (errno != EINTR) return false;
    }
    return true;
  }
  int fd_;
};

FileStore::FileStore(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (!file_.valid()) fail("cannot open");
}

void FileStore::fail(const std::string& what) const {
  throw StoreError("file store " + printable(path_) + ": " + what +
                   (errno != 0 ? str(": ", std::strerror(errno)) : ""));
}

Table FileStore::read_table() {
  struct stat status = {};
  if (fstat(file_.get(), &status) != 0) fail("cannot inspect");
  errno = 0;
  if (!S_ISREG(status.st_mode)) fail("is not a regular file");
  if (static_cast<std::size_t>(status.st_size) > MAX_FILE)
    fail("is too large for a store; was another file named?");
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  if (pread(file_.get(), bytes.data(), bytes.size(), 0) != status.st_size) fail("cannot read");
  Table table;
  std::size_t at = 0;
  while (bytes.size() - at >= sizeof(RecordHeader)) {
    RecordHeader header = {};
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    const std::size_t value_bytes = header.value_bytes == DELETED ? 0 : header.value_bytes;
    errno = 0;
    if (header.key_bytes > MAX_TEXT || value_bytes > MAX_TEXT)
      fail("is not a store; use a new file for each job");
    if (bytes.size() - at - sizeof(header) < header.key_bytes + value_bytes) break;
    const std::string key = bytes.substr(at + sizeof(header), header.key_bytes);
    if (header.value_bytes == DELETED) {
      table.erase(key);
    } else {
      table[key] = bytes.substr(at + sizeof(header) + header.key_bytes, value_bytes);
    }
    at += sizeof(header) + header.key_bytes + value_bytes;
  }
  complete_bytes_ = static_cast<long>(at);
  return table;
}

void FileStore::append(const std::string& key, const std::string* value) {
  errno = 0;
  if (key.size() > MAX_TEXT || (value != nullptr && value->size() > MAX_TEXT))
    fail("keys and values must be smaller than 1 MiB");
  const RecordHeader header = {static_cast<std::uint32_t>(key.size()),
                               value == nullptr ? DELETED : static_cast<std::uint32_t>(value->size())};
  std::string record(reinterpret_cast<const char*>(&header), sizeof(header));
  record += key;
  if (value != nullptr) record += *value;
  if (ftruncate(file_.get(), complete_bytes_) != 0) fail("cannot cut off an incomplete record");
  if (pwrite(file_.get(), record.data(), record.size(), complete_bytes_) !=
      static_cast<ssize_t>(record.size())) {
    fail("cannot write");
  }
}

void FileStore::set(const std::string& key, const std::string& value) {
  const Lock lock(*this, F_WRLCK);
  read_table();
  append(key, &value);
}

std::optional<std::string> FileStore::find(const std::string& key) {
  const Lock lock(*this, F_WRLCK);
  const Table table = read_table();
  const auto at = table.find(key);
  return at == table.end() ? std::nullopt : std::optional(at->second);
}

long FileStore::add(const std::string& key, long amount) {
  const Lock lock(*this, F_WRLCK);
  Table table = read_table();
  const long sum = table_add(table, key, amount);
  append(key, &table[key]);
  return sum;
}

std::string FileStore::compare_set(const std::string& key, const std::string& expected,
                                   const std::string& desired) {
  const Lock lock(*this, F_WRLCK);
  Table table = read_table();
  const Table before = table;
  const std::string result = table_compare_set(table, key, expected, desired);
  if (table != before) append(key, &table[key]);
  return result;
}

bool FileStore::delete_key(const std::string& key) {
  const Lock lock(*this, F_WRLCK);
  const bool existed = read_table().count(key) > 0;
  if (existed) append(key, nullptr);
  return existed;
}

std::size_t FileStore::num_keys() {
  const Lock lock(*this, F_WRLCK);
  return read_table().size();
}

// Network file systems have no change notification, so this polls.
void FileStore::wait_for_change(std::chrono::milliseconds at_most) {
  std::this_thread::sleep_for(std::min(at_most, std::chrono::milliseconds(10)));
}

}  // namespace lockstep
