#include "lockstep/formats/gzip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {
namespace {

constexpr std::uint64_t DEFLATE_BEST_RATIO = 1032;
constexpr int GZIP_ONLY = 16 + MAX_WBITS;

}  // namespace

struct GzipReader::State {
  PlainFile file;
  std::uint64_t file_size = 0;
  std::uint64_t position = 0;  // position of the next byte to read
  std::array<char, 32768> input{};
  std::size_t input_begin = 0;
  std::size_t input_end = 0;
  bool is_gzip = false;
  bool in_member = false;   // between the first and the last byte of a gzip member
  bool has_member = false;  // one has ended
  z_stream stream{};
  bool has_stream = false;

  explicit State(std::string path) : file(std::move(path)), file_size(file.size()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (has_stream) inflateEnd(&stream);
  }

  std::string name() const { return in_quotes(file.path()); }

  // Makes `input` non-empty unless the file has ended.
  void refill() {
    if (input_begin < input_end) return;
    input_begin = 0;
    input_end = file.read_at(position, std::as_writable_bytes(std::span(input)));
    position += input_end;
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
      if (!in_member && is_padding()) break;
      if (!in_member) start_member();
      done += inflate_some(out.subspan(done));
    }
    return done;
  }

  // Returns whether the rest of the file, after a member, is zeros; then all of it has been read. Tapes and
  // block devices are padded like that.
  bool is_padding() {
    if (!has_member || input[input_begin] != '\0') return false;
    for (refill(); !input_is_empty(); refill()) {
      auto* const end = input.begin() + static_cast<std::ptrdiff_t>(input_end);
      if (std::any_of(input.begin() + static_cast<std::ptrdiff_t>(input_begin), end,
                      [](char c) { return c != '\0'; }))
        throw FormatError(str(name(), ": bytes after the end of the gzip stream"));
      input_begin = input_end;
    }
    return true;
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
      has_member = true;
    } else if (result != Z_OK) {
      throw FormatError(str(name(), ": broken gzip stream (",
                            stream.msg != nullptr ? stream.msg : zError(result), "); fetch the file again"));
    }
    return room - stream.avail_out;
  }
};

GzipReader::GzipReader(std::string path) : state_(std::make_unique<State>(std::move(path))) {
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
  if (!state_->is_gzip) return state_->file_size;
  std::uint64_t most = 0;
  const bool is_too_large = __builtin_mul_overflow(state_->file_size, DEFLATE_BEST_RATIO, &most);
  return is_too_large ? std::numeric_limits<std::uint64_t>::max() : most;
}

bool GzipReader::is_gzip() const { return state_->is_gzip; }

const std::string& GzipReader::path() const { return state_->file.path(); }

}  // namespace lockstep
