// Packs bytes as the command gzip does, for tests of what reads gzip.
#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

namespace lockstep::testing {

inline std::string gzip(const std::string& content, int level = 6) {
  constexpr int GZIP_WINDOW = 16 + MAX_WBITS;
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string packed(deflateBound(&stream, content.size()), '\0');
  std::string input = content;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int result = deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("deflate");
  return packed;
}

}  // namespace lockstep::testing
