#include "lockstep/comm/collectives/objects.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/barrier.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Of another length for every rank, empty for rank 0, with zero bytes in it.
std::string bytes_of_rank(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 1000, '\0') +
         std::string(static_cast<std::size_t>(rank), 'x');
}
json json_of_rank(int rank) {
  return {{"rank", rank}, {"list", std::vector<int>(static_cast<std::size_t>(rank), 7)}};
}

RANKS_TEST(Objects, AllGather, Ranks(1, 2, 3, 4), EveryBackend()) {
  const auto bytes = comm::all_gather_object(world(), bytes_of_rank(rank()));
  const auto values = comm::all_gather_object(world(), json_of_rank(rank()));
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(size()));
  ASSERT_EQ(values.size(), bytes.size());
  for (int r = 0; r < size(); ++r) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(r)], bytes_of_rank(r));
    EXPECT_EQ(values[static_cast<std::size_t>(r)], json_of_rank(r));
  }
}

RANKS_TEST(Objects, Gather, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    const auto bytes = comm::gather_object(world(), bytes_of_rank(rank()), root);
    const auto values = comm::gather_object(world(), json_of_rank(rank()), root);
    ASSERT_EQ(bytes.size(), static_cast<std::size_t>(rank() == root ? size() : 0));
    ASSERT_EQ(values.size(), bytes.size());
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      EXPECT_EQ(bytes[r], bytes_of_rank(static_cast<int>(r)));
      EXPECT_EQ(values[r], json_of_rank(static_cast<int>(r)));
    }
  }
}

RANKS_TEST(Objects, Broadcast, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    std::string bytes = bytes_of_rank(rank());
    json value = json_of_rank(rank());
    comm::broadcast_object(world(), bytes, root);
    comm::broadcast_object(world(), value, root);
    EXPECT_EQ(bytes, bytes_of_rank(root));
    EXPECT_EQ(value, json_of_rank(root));
  }
}

RANKS_TEST(Objects, Scatter, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    std::vector<std::string> bytes;
    std::vector<json> values;
    for (int r = 0; r < size() && rank() == root; ++r) {
      bytes.push_back(bytes_of_rank(r));
      values.push_back(json_of_rank(r));
    }
    EXPECT_EQ(comm::scatter_object(world(), bytes, root), bytes_of_rank(rank()));
    EXPECT_EQ(comm::scatter_object(world(), values, root), json_of_rank(rank()));
  }
}

RANKS_TEST(Objects, FromRankToRank, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  if (rank() != 0) {
    comm::send_object(world(), bytes_of_rank(rank()), 0, 5);
    comm::send_object(world(), json_of_rank(rank()), 0, 6);
    return;
  }
  for (int i = 1; i < size(); ++i) {
    const auto object = comm::recv_object(world(), ANY_SOURCE, 5);
    EXPECT_EQ(object.bytes, bytes_of_rank(object.source));
    EXPECT_EQ(comm::recv_json_object(world(), i, 6), json_of_rank(i));
  }
}

// What is not JSON is refused by whoever reads it, naming the sender; the group goes on.
RANKS_TEST(Objects, WhatIsNotJsonIsRefusedByName, Ranks(2, 3), EveryBackend()) {
  if (rank() == 1) comm::send_object(world(), std::string("{\"a\": "), 0);
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::recv_json_object(world(), 1); },
                ThrowsMessage<FormatError>(
                    AllOf(HasSubstr("rank 1"), HasSubstr("is not JSON"), HasSubstr("rank 0"))));
  }
  comm::barrier(world());
}

RANKS_TEST(Objects, TooLargeIsRefusedBeforeAnythingIsSent, Ranks(1, 2), EveryBackend()) {
  if (reference::SANITIZED) {
    std::fprintf(stderr, "not run: the sanitizers need minutes for the shadow of 1 GiB\n");
    return;
  }
  const std::string large(comm::MAX_OBJECT_BYTES + 1, 'x');
  EXPECT_THAT([&] { comm::all_gather_object(world(), large); },
              ThrowsMessage<InvalidArgument>(HasSubstr("too large")));
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep
