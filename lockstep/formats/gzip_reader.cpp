#include "lockstep/formats/gzip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::uint64_t DEFLATE_BEST_RATIO = 1032;
constexpr int GZIP_ONLY = 16 + MAX_WBITS;

}  // namespace

struct GzipReader::State {
  std::string path;
  std::ifstream file;
  std::uint64_t file_size = 0;
  std::array<char, 32768> input{};
  std::size_t input_begin = 0;
  std::size_t input_end = 0;
  bool is_gzip = false;
  bool in_member = false;  // between the first and the last byte of a gzip member
  z_stream stream{};
  bool has_stream = false;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (has_stream) inflateEnd(&stream);
  }

  std::string name() const { return str('"', printable(path), '"'); }

  // Makes `input` non-empty unless the file has ended.
  void refill() {
    if (input_begin < input_end || !file) return;
    file.read(input.data(), static_cast<std::streamsize>(input.size()));
    if (file.bad()) throw SystemError(str("cannot read ", name()), errno);
    input_begin = 0;
    input_end = static_cast<std::size_t>(file.gcount());
  }

  bool input_is_empty() const { return input_begin == input_end; }

  std::size_t read_plain(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      refill();
      if (input_is_empty()) break;
      const std::size_t count = std::min(out.size() - done, input_end - input_begin);
      std::copy_n(reinterpret_cast<const std::byte*>(input.data() + input_begin), count, out.data() + done);
      input_begin += count;
      done += count;
    }
    return done;
  }

  std::size_t read_gzip(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size()) {
      refill();
      if (input_is_empty()) {
        if (in_member) throw FormatError(str(name(), ": the gzip stream is cut short; fetch the file again"));
        break;
      }
      if (!in_member) start_member();
      done += inflate_some(out.subspan(done));
    }
    return done;
  }

  void start_member() {
    if (input[input_begin] != '\x1f')
      throw FormatError(str(name(), ": bytes after the end of the gzip stream"));
    inflateReset(&stream);
    in_member = true;
  }

  std::size_t inflate_some(std::span<std::byte> out) {
    const auto room = static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    stream.next_in = reinterpret_cast<Bytef*>(input.data() + input_begin);
    stream.avail_in = static_cast<uInt>(input_end - input_begin);
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = room;
    const int result = inflate(&stream, Z_NO_FLUSH);
    input_begin = input_end - stream.avail_in;
    if (result == Z_STREAM_END) {
      in_member = false;
    } else if (result != Z_OK) {
      throw FormatError(str(name(), ": broken gzip stream (",
                            stream.msg != nullptr ? stream.msg : zError(result), "); fetch the file again"));
    }
    return room - stream.avail_out;
  }
};

GzipReader::GzipReader(std::string path) : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(state_->path, error);
  if (!std::filesystem::exists(status))
    throw SystemError(str("cannot open ", state_->name()), error ? error.value() : ENOENT);
  if (!std::filesystem::is_regular_file(status))
    throw SystemError(str("cannot read ", state_->name(), ", which is not a plain file"), EINVAL);
  state_->file.open(state_->path, std::ios::binary);
  if (!state_->file) throw SystemError(str("cannot open ", state_->name()), errno);
  state_->file_size = std::filesystem::file_size(state_->path);
  state_->refill();
  state_->is_gzip = state_->input_end >= 2 && state_->input[0] == '\x1f' && state_->input[1] == '\x8b';
  if (state_->is_gzip) {
    if (inflateInit2(&state_->stream, GZIP_ONLY) != Z_OK) throw SystemError("zlib cannot start", ENOMEM);
    state_->has_stream = true;
  }
}

GzipReader::~GzipReader() = default;
GzipReader::GzipReader(GzipReader&&) noexcept = default;
GzipReader& GzipReader::operator=(GzipReader&&) noexcept = default;

std::size_t GzipReader::read(std::span<std::byte> out) {
  return state_->is_gzip ? state_->read_gzip(out) : state_->read_plain(out);
}

std::uint64_t GzipReader::size_limit() const {
  return state_->is_gzip ? state_->file_size * DEFLATE_BEST_RATIO : state_->file_size;
}

bool GzipReader::is_gzip() const { return state_->is_gzip; }

const std::string& GzipReader::path() const { return state_->path; }

}  // namespace lockstep
