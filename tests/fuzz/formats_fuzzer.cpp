// libFuzzer's entry for the readers of files, one for each value of FUZZ (tests/fuzz/run.py compiles them).
// An input is read, or refused by an error of ours; everything else is a finding: another exception, memory
// or time without bound, undefined behaviour.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/formats/checkpoint_index.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/dcp_metadata.h"
#include "lockstep/formats/pickle_tensors.h"
#include "lockstep/formats/pt_reader.h"
#include "lockstep/formats/safetensors.h"
#include "lockstep/formats/safetensors_index.h"

namespace {

using namespace lockstep;

// A file with these bytes, as long as this object lives.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : file_(::memfd_create("input", MFD_CLOEXEC)) {
    if (::write(file_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

[[maybe_unused]] void safetensors(std::span<const std::byte> bytes, std::string_view text) {
  (void)parse_safetensors_header(text, bytes.size());
}

// With the checksum that fits, which no mutation finds.
[[maybe_unused]] void checkpoint_index(std::span<const std::byte> /*bytes*/, std::string_view text) {
  (void)nlohmann::json::accept(text);
  nlohmann::json body = nlohmann::json::parse(text, nullptr, false);
  if (!body.is_object() || text.size() > 100'000) return;
  body.erase("xxh128");
  std::string fitting;
  try {
    body["xxh128"] = checksum_of(body.dump());
    fitting = body.dump();
  } catch (const nlohmann::json::exception&) {
    return;  // a text that is not UTF-8
  }
  const CheckpointIndex index = parse_checkpoint_index(fitting);
  if (to_text(parse_checkpoint_index(to_text(index))) != to_text(index)) std::abort();
}

[[maybe_unused]] void pt(std::span<const std::byte> bytes, std::string_view /*text*/) {
  const MemoryFile file(bytes);
  const PtReader reader(file.path());
  std::uint64_t left = std::uint64_t{16} << 20U;
  for (const PtTensor& tensor : reader.tensors()) {
    if (size_of(tensor) > left) break;
    left -= size_of(tensor);
    std::vector<std::byte> values(size_of(tensor));
    reader.read(tensor, values);
  }
}

[[maybe_unused]] void pickle(std::span<const std::byte> bytes, std::string_view /*text*/) {
  (void)pickled_state(bytes);
}

[[maybe_unused]] void dcp(std::span<const std::byte> bytes, std::string_view /*text*/) {
  (void)parse_dcp_metadata(bytes);
}

[[maybe_unused]] void safetensors_index(std::span<const std::byte> bytes, std::string_view /*text*/) {
  const MemoryFile file(bytes);
  (void)read_safetensors_index(file.path());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    FUZZ({reinterpret_cast<const std::byte*>(data), size}, {reinterpret_cast<const char*>(data), size});
  } catch (const lockstep::FormatError&) {
  } catch (const lockstep::SystemError&) {
  }
  return 0;
}
