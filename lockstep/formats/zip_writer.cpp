#include "lockstep/formats/zip_writer.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::uint64_t ALIGNMENT = 64;
constexpr std::uint64_t FULL_32 = 0xffff'ffff;  // in a field of four bytes: look in the field of zip64
constexpr std::uint64_t FULL_16 = 0xffff;
constexpr std::uint64_t LOCAL_HEADER = 30;  // bytes, without name and extra fields
constexpr std::uint64_t EXTRA_HEADER = 4;   // bytes of an extra field before its content
constexpr unsigned ALIGNMENT_FIELD = 0xd935;
constexpr unsigned ZIP64_FIELD = 1;
constexpr unsigned FLAGS = 0x0808;  // names are UTF-8; the checksum follows the data
constexpr unsigned VERSION = 45;    // zip64
constexpr std::uint64_t JANUARY_1980 = 0x21;

// Little-endian fields, one after the other.
class Fields {
 public:
  Fields& two(std::uint64_t value) { return add(value, 2); }
  Fields& four(std::uint64_t value) { return add(value, 4); }
  Fields& eight(std::uint64_t value) { return add(value, 8); }
  Fields& text(const std::string& value) {
    text_ += value;
    return *this;
  }
  const std::string& all() const { return text_; }

 private:
  Fields& add(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xffU);
    return *this;
  }
  std::string text_;
};

std::string local_header(const std::string& name, std::uint64_t size, std::uint64_t position) {
  const bool is_large = size >= FULL_32;
  Fields extra;
  if (is_large) extra.two(ZIP64_FIELD).two(16).eight(0).eight(0);
  const std::uint64_t data = position + LOCAL_HEADER + name.size() + extra.all().size() + EXTRA_HEADER + 2;
  const std::uint64_t padding = (ALIGNMENT - data % ALIGNMENT) % ALIGNMENT;
  extra.two(ALIGNMENT_FIELD).two(2 + padding).two(ALIGNMENT).text(std::string(padding, '\0'));
  Fields header;
  header.text("PK\3\4").two(VERSION).two(FLAGS).two(0).two(0).two(JANUARY_1980).four(0);
  header.four(is_large ? FULL_32 : 0).four(is_large ? FULL_32 : 0);
  header.two(name.size()).two(extra.all().size()).text(name).text(extra.all());
  return header.all();
}

std::string directory_entry(const std::string& name, std::uint64_t size, std::uint64_t offset,
                            std::uint32_t crc) {
  Fields large;
  if (size >= FULL_32) large.eight(size).eight(size);
  if (offset >= FULL_32) large.eight(offset);
  Fields extra;
  if (!large.all().empty()) extra.two(ZIP64_FIELD).two(large.all().size()).text(large.all());
  Fields entry;
  entry.text("PK\1\2").two(VERSION).two(VERSION).two(FLAGS).two(0).two(0).two(JANUARY_1980).four(crc);
  entry.four(std::min(size, FULL_32)).four(std::min(size, FULL_32)).two(name.size()).two(extra.all().size());
  entry.two(0).two(0).two(0).four(0).four(std::min(offset, FULL_32)).text(name).text(extra.all());
  return entry.all();
}

std::string directory_end(std::uint64_t records, std::uint64_t begin, std::uint64_t size) {
  Fields end;
  if (records >= FULL_16 || begin >= FULL_32 || size >= FULL_32) {
    end.text("PK\6\6").eight(44).two(VERSION).two(VERSION).four(0).four(0);
    end.eight(records).eight(records).eight(size).eight(begin);
    end.text("PK\6\7").four(0).eight(begin + size).four(1);
  }
  end.text("PK\5\6").two(0).two(0).two(std::min(records, FULL_16)).two(std::min(records, FULL_16));
  end.four(std::min(size, FULL_32)).four(std::min(begin, FULL_32)).two(0);
  return end.all();
}

}  // namespace

ZipWriter::ZipWriter(std::string path) : path_(std::move(path)), file_(path_) {}

void ZipWriter::put(const std::string& text) {
  file_.write(std::as_bytes(std::span(text)));
  position_ += text.size();
}

void ZipWriter::begin(const std::string& name, std::uint64_t size) {
  end_record();
  if (name.empty() || name.size() >= FULL_16)
    throw InvalidArgument(
        str("zip file ", in_quotes(path_), ": a record's name has ", name.size(), " bytes"));
  records_.push_back({name, size, position_, 0});
  missing_ = size;
  is_open_ = true;
  put(local_header(name, size, position_));
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  if (!is_open_ || bytes.size() > missing_)
    throw InvalidArgument(str("zip file ", in_quotes(path_), ": ", bytes.size(),
                              " bytes came for a record that lacks ", missing_));
  Record& record = records_.back();
  record.crc = static_cast<std::uint32_t>(
      crc32_z(record.crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  file_.write(bytes);
  position_ += bytes.size();
  missing_ -= bytes.size();
}

// The checksum follows the data, with both sizes.
void ZipWriter::end_record() {
  if (!is_open_) return;
  const Record& record = records_.back();
  if (missing_ > 0)
    throw InvalidArgument(str("zip file ", in_quotes(path_), ": record ", in_quotes(record.name), " lacks ",
                              missing_, " of ", record.size, " bytes"));
  is_open_ = false;
  Fields descriptor;
  descriptor.text("PK\7\10").four(record.crc);
  if (record.size >= FULL_32) {
    descriptor.eight(record.size).eight(record.size);
  } else {
    descriptor.four(record.size).four(record.size);
  }
  put(descriptor.all());
}

void ZipWriter::commit(bool durable) {
  end_record();
  const std::uint64_t begin = position_;
  for (const Record& record : records_)
    put(directory_entry(record.name, record.size, record.offset, record.crc));
  put(directory_end(records_.size(), begin, position_ - begin));
  file_.commit(durable);
}

}  // namespace lockstep
