#include "lockstep/formats/tensorboard_events.h"

#include <gtest/gtest.h>

#include "lockstep/formats/crc32c.h"

namespace lockstep {
namespace {

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);  // the check value of CRC-32/ISCSI
  // Appendix B.4 of the RFC, whose bytes stand in the order of the wire.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  std::string ascending(32, '\0');
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
}

TEST(TensorboardEvents, AreEncodedAsProtocolBuffers) {
  // wall_time 1.0 is 0x3FF0000000000000, -1 a varint of ten bytes; 2.0F is 0x40000000.
  const std::string event = scalar_event("a", 2, -1, 1);
  EXPECT_EQ(event, std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9) + std::string("\x10") + std::string(9, '\xff') +
                       std::string("\x01\x2a\x0a\x0a\x08\x0a\x01"
                                   "a\x15\0\0\0\x40",
                                   13));
}

TEST(TensorboardEvents, RecordsThatAreTornOrDamagedEndTheWholeOnes) {
  const std::string one = tf_record("data"), two = tf_record("");
  EXPECT_EQ(one.size(), 8U + 4 + 4 + 4);
  const std::string both = one + two;
  for (std::size_t limit = 0; limit <= both.size() + 1; ++limit)
    EXPECT_EQ(whole_tf_records(both, limit), limit >= both.size()  ? both.size()
                                             : limit >= one.size() ? one.size()
                                                                   : 0);
  EXPECT_EQ(whole_tf_records(both.substr(0, both.size() - 1), both.size()), one.size()) << "a torn end";
  for (std::size_t at = 0; at < one.size(); ++at) {
    std::string damaged = both;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_EQ(whole_tf_records(damaged, damaged.size()), 0U) << at;
  }
}

}  // namespace
}  // namespace lockstep
